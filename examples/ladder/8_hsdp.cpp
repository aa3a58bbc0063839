// Rung 8, HSDP: FSDP within groups of N/2 neighbours, which are replicas of each other.
//
// Parameters are gathered within a group, as over the fast links of a node. The sums of a group's
// gradients are added to those of the other group by an all-reduce, so 1/(N/2) of the gradients are
// all that crosses the slow links. The sums have the bits of one tree over all ranks, because a group
// is a half of that tree.
#include "examples/ladder/ladder.h"

using namespace tessera;

namespace {

class Training final : public ladder::Rung {
 public:
  using Rung::Rung;

 private:
  void prepare() override {
    const int group = std::max(ranks_ / 2, 1);
    shards_ = world_.split(rank_ / group);
    replicas_ = world_.split(rank_ % group);
    std::vector<ParameterShard> shards;
    for (const auto& unit : units()) {
      parameters_.emplace_back();
      for (const Parameter& parameter : unit->parameters()) {
        const std::int64_t count = parameter.numel() / shards_->size();
        const Owned owned = {.values = ladder::zeros(count, Category::parameters),
                             .gradients = ladder::zeros(count, Category::gradients)};
        parameter.initialize(owned.values, shards_->rank() * count, ladder::kSeed);
        shards.push_back({parameter.name(), owned.values, owned.gradients});
        parameters_.back().push_back(owned);
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
      own_slice(windows[p]).copy_from(parameters_[index_of(unit)][p].values);
    }
    slot.ready = shards_->all_gather(windows, after_computation(), unit.name());
  }

  void before_gradients(Unit& unit) override {
    const GradientSlot& slot = gradient_slots_[index_of(unit) % 2];
    wait_for_communication(slot.sent);
    ladder::open_gradients(unit, slot.buffer);
  }

  void after_gradients(Unit& unit) override {
    GradientSlot& slot = gradient_slots_[index_of(unit) % 2];
    std::vector<Tensor> sums;
    for (const Owned& owned : parameters_[index_of(unit)]) sums.push_back(owned.gradients);
    shards_->reduce_scatter(sums, ladder::windows_of(unit, slot.buffer), after_computation(),
                            unit.name());
    slot.sent = replicas_->all_reduce(sums, stream_, unit.name());
  }

  /// This rank's rows of a parameter.
  Tensor own_slice(const Tensor& window) const {
    const std::int64_t count = window.numel() / shards_->size();
    return window.slice(shards_->rank() * count, (shards_->rank() + 1) * count);
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
    Tensor values, gradients;
  };

  std::unique_ptr<Communicator> shards_, replicas_;
  std::vector<std::vector<Owned>> parameters_;  // per unit
  Slot slots_[3];
  GradientSlot gradient_slots_[2];
  std::optional<AdamW> optimizer_;
};

}  // namespace

int main(int argument_count, char** arguments) {
  return ladder::climb<Training>(argument_count, arguments);
}
