// Rung 5, ZeRO-2: each rank keeps the sums of 1/N of the gradients.
//
// Backward writes a unit's gradients into one of two slots. The reduce-scatter brings the sums of
// the rank's part to memory of their own, and the slot serves the next unit but one.
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
      gradients_.push_back(ladder::zeros(elements / ranks_, Category::gradients));
      shards.push_back({unit->name(), own_part(values_.back()), gradients_.back()});
    }
    for (GradientSlot& slot : gradient_slots_) {
      slot.buffer = ladder::zeros(ladder::most_elements(units()), Category::communication);
    }
    gathered_.resize(units().size());
    optimizer_.emplace(std::move(shards), ladder::kAdamW);
  }

  void step(int step) override {
    backward(loss(step, rank_));
    wait_for_communication(stream_.record());
    optimizer_->step(ladder::kLearningRate);
    for (std::size_t u = 0; u < units().size(); ++u) {
      gathered_[u] = world_.all_gather({values_[u]}, after_computation(), units()[u]->name());
    }
  }

  void before_use(Unit& unit) override { wait_for_communication(gathered_[index_of(unit)]); }

  void before_gradients(Unit& unit) override {
    const GradientSlot& slot = gradient_slots_[index_of(unit) % 2];
    wait_for_communication(slot.sent);
    ladder::open_gradients(unit, slot.buffer);
  }

  void after_gradients(Unit& unit) override {
    GradientSlot& slot = gradient_slots_[index_of(unit) % 2];
    const Tensor whole = slot.buffer.slice(0, ladder::elements_of(unit));
    slot.sent = world_.reduce_scatter({gradients_[index_of(unit)]}, {whole}, after_computation(),
                                      unit.name());
  }

  /// This rank's part of a unit's buffer.
  Tensor own_part(const Tensor& buffer) const {
    const std::int64_t part = buffer.numel() / ranks_;
    return buffer.slice(rank_ * part, (rank_ + 1) * part);
  }

  struct GradientSlot {
    Tensor buffer;
    Event sent;
  };

  std::vector<Tensor> values_;     // per unit
  std::vector<Tensor> gradients_;  // per unit: this rank's part
  GradientSlot gradient_slots_[2];
  std::vector<Event> gathered_;  // per unit: its values are up to date
  std::optional<AdamW> optimizer_;
};

}  // namespace

int main(int argument_count, char** arguments) {
  return ladder::climb<Training>(argument_count, arguments);
}
