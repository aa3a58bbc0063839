// Rung 3, DDP with overlap: a unit's gradients travel while the units before it compute theirs.
//
// The model calls after_gradients() when a unit's gradients are complete. The all-reduce goes to the
// communication stream, where it waits for the computation so far. The optimizer waits for all of
// them.
#include "examples/ladder/ladder.h"

using namespace tessera;

namespace {

class Training final : public ladder::Rung {
 public:
  using Rung::Rung;

 private:
  void prepare() override {
    std::vector<ParameterShard> shards;
    for (const auto& unit : units()) {
      const std::int64_t elements = ladder::elements_of(*unit);
      values_.push_back(ladder::zeros(elements, Category::parameters));
      ladder::initialize(*unit, values_.back());
      ladder::open_values(*unit, values_.back());
      gradients_.push_back(ladder::zeros(elements, Category::gradients));
      ladder::open_gradients(*unit, gradients_.back());
      shards.push_back({unit->name(), values_.back(), gradients_.back()});
    }
    optimizer_.emplace(std::move(shards), ladder::kAdamW);
  }

  void step(int step) override {
    for (const auto& unit : units()) ladder::reset_gradients(*unit);
    backward(loss(step, rank_));
    wait_for_communication(stream_.record());
    optimizer_->step(ladder::kLearningRate);
  }

  void after_gradients(Unit& unit) override {
    world_.all_reduce({gradients_[index_of(unit)]}, after_computation(), unit.name());
  }

  std::vector<Tensor> values_, gradients_;  // per unit
  std::optional<AdamW> optimizer_;
};

}  // namespace

int main(int argument_count, char** arguments) {
  return ladder::climb<Training>(argument_count, arguments);
}
