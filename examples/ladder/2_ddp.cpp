// Rung 2, DDP: every rank holds everything and computes its own part of the batch.
//
// After the backward pass an all-reduce adds the gradients of all ranks. Then every rank makes the
// same update, so the parameters stay equal and are never sent.
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
    for (const Tensor& gradients : gradients_) {
      world_.all_reduce({gradients}, context().compute_stream());
    }
    optimizer_->step(ladder::kLearningRate);
  }

  std::vector<Tensor> values_, gradients_;  // per unit
  std::optional<AdamW> optimizer_;
};

}  // namespace

int main(int argument_count, char** arguments) {
  return ladder::climb<Training>(argument_count, arguments);
}
