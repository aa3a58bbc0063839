// Rung 4, ZeRO-1: each rank updates 1/N of every unit, and has moments for that part alone.
//
// An all-reduce is a reduce-scatter and an all-gather. The update now takes place between the two.
// The reduce-scatter leaves each rank with the sums of its part; the all-gather sends the updated
// values instead of gradients. The bytes are the same, and AdamW's state is divided by N.
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
      shards.push_back({unit->name(), own_part(values_.back()), own_part(gradients_.back())});
    }
    gathered_.resize(units().size());
    optimizer_.emplace(std::move(shards), ladder::kAdamW);
  }

  void step(int step) override {
    for (const auto& unit : units()) ladder::reset_gradients(*unit);
    backward(loss(step, rank_));
    wait_for_communication(stream_.record());
    optimizer_->step(ladder::kLearningRate);
    for (std::size_t u = 0; u < units().size(); ++u) {
      gathered_[u] = world_.all_gather({values_[u]}, after_computation(), units()[u]->name());
    }
  }

  void before_use(Unit& unit) override { wait_for_communication(gathered_[index_of(unit)]); }

  void after_gradients(Unit& unit) override {
    const Tensor& gradients = gradients_[index_of(unit)];
    world_.reduce_scatter({own_part(gradients)}, {gradients}, after_computation(), unit.name());
  }

  /// This rank's part of a unit's buffer.
  Tensor own_part(const Tensor& buffer) const {
    const std::int64_t part = buffer.numel() / ranks_;
    return buffer.slice(rank_ * part, (rank_ + 1) * part);
  }

  std::vector<Tensor> values_, gradients_;  // per unit
  std::vector<Event> gathered_;             // per unit: its values are up to date
  std::optional<AdamW> optimizer_;
};

}  // namespace

int main(int argument_count, char** arguments) {
  return ladder::climb<Training>(argument_count, arguments);
}
