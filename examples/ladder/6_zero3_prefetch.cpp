// Rung 6, ZeRO-3 with a prefetch: the next unit is gathered while one computes.
//
// The blocks take turns with two slots; the embedding and the head share a third. A slot that still
// holds a unit's values is used as it is.
#include "examples/ladder/ladder.h"

using namespace tessera;

namespace {

class Training final : public ladder::Rung {
 public:
  using Rung::Rung;

 private:
  void prepare() override {
    std::vector<ParameterShard> shards;
    int count = 0;
    for (const auto& unit : units()) {
      parameters_.emplace_back();
      for (const Parameter& parameter : unit->parameters()) {
        Owned& owned = parameters_.back().emplace_back();
        owned.owner = count++ % ranks_;
        if (owned.owner != rank_) continue;
        owned.values = ladder::zeros(parameter.numel(), Category::parameters);
        parameter.initialize(owned.values, 0, ladder::kSeed);
        owned.gradients = ladder::zeros(parameter.numel(), Category::gradients);
        shards.push_back({parameter.name(), owned.values, owned.gradients});
      }
    }
    for (Slot& slot : slots_) {
      slot.buffer = ladder::zeros(ladder::most_elements(units()), Category::communication);
    }
    for (GradientSlot& slot : gradient_slots_) {
      slot.buffer = ladder::zeros(ladder::most_elements(units()), Category::communication);
    }
    optimizer_.emplace(std::move(shards), ladder::kAdamW);
  }

  void step(int step) override {
    backward(loss(step, rank_));
    wait_for_communication(stream_.record());
    optimizer_->step(ladder::kLearningRate);
    for (Slot& slot : slots_) slot.holds = nullptr;
  }

  void before_use(Unit& unit) override {
    gather(unit);
    wait_for_communication(slot_of(unit).ready);
    ladder::open_values(unit, slot_of(unit).buffer);
    if (next(unit) != nullptr) gather(*next(unit));
  }

  void after_use(Unit& unit) override { ladder::close_values(unit); }

  void gather(const Unit& unit) {
    Slot& slot = slot_of(unit);
    if (std::exchange(slot.holds, &unit) == &unit) return;
    const std::vector<Tensor> windows = ladder::windows_of(unit, slot.buffer);
    for (std::size_t p = 0; p < windows.size(); ++p) {
      const Owned& owned = parameters_[index_of(unit)][p];
      if (owned.owner == rank_) windows[p].copy_from(owned.values);
      slot.ready = world_.broadcast({windows[p]}, owned.owner, after_computation(), unit.name());
    }
  }

  void before_gradients(Unit& unit) override {
    const GradientSlot& slot = gradient_slots_[index_of(unit) % 2];
    wait_for_communication(slot.sent);
    ladder::open_gradients(unit, slot.buffer);
  }

  void after_gradients(Unit& unit) override {
    GradientSlot& slot = gradient_slots_[index_of(unit) % 2];
    const std::vector<Tensor> windows = ladder::windows_of(unit, slot.buffer);
    const Stream& stream = after_computation();
    for (std::size_t p = 0; p < windows.size(); ++p) {
      const Owned& owned = parameters_[index_of(unit)][p];
      world_.reduce({windows[p]}, owned.owner, stream, unit.name());
      if (owned.owner != rank_) continue;
      stream.enqueue([sum = owned.gradients, slot = windows[p]] { sum.copy_from(slot); });
    }
    slot.sent = stream.record();
  }

  struct Slot {
    Tensor buffer;
    const Unit* holds = nullptr;
    Event ready;  // all of the unit's values are there
  };
  Slot& slot_of(const Unit& unit) {
    const std::size_t u = index_of(unit);
    return slots_[u == 0 || u + 1 == units().size() ? 2 : u % 2];
  }
  struct GradientSlot {
    Tensor buffer;
    Event sent;
  };
  struct Owned {
    int owner = 0;
    Tensor values, gradients;  // on the owner
  };

  std::vector<std::vector<Owned>> parameters_;  // per unit
  Slot slots_[3];
  GradientSlot gradient_slots_[2];
  std::optional<AdamW> optimizer_;
};

}  // namespace

int main(int argument_count, char** arguments) {
  return ladder::climb<Training>(argument_count, arguments);
}
