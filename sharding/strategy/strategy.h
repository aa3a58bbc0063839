// Strategy: carries a plan out on one rank.
//
// It owns this rank's shards and hooks into the model's units: parameters are gathered before a
// unit uses them and resharded after, gradients are reduced when they are complete. A training step
// is a Step (step.h):
//
//   Step step = strategy.start_step();
//   for (every micro-batch) { forward; backward; step.finish_micro_batch(); }
//   step.update([&] { optimizer.step(...); });
//
// Masters are written only in update() and write_masters().
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "autograd/context_axis.h"
#include "autograd/unit.h"
#include "kernels/gradient_norm/op.h"
#include "runtime/matrix_exchange.h"
#include "sharding/comm/communicator.h"
#include "sharding/plan/plan.h"
#include "sharding/shard.h"
#include "sharding/share.h"
#include "sharding/strategy/expert_axis.h"
#include "sharding/strategy/parameter_group.h"
#include "sharding/strategy/step.h"
#include "sharding/strategy/tensor_ranks.h"

namespace tessera {

class Strategy final : public UnitHooks, public ShardedParameters {
 public:
  /// Creates this rank's shards, with initial values made from `seed`, and attaches itself to the
  /// units, which must outlive it. Queues the first gathers. A collective over `world`, which must
  /// outlive the strategy; null for strategy single.
  Strategy(const Units& units, Plan plan, std::uint64_t seed, Communicator* world);
  ~Strategy() override;

  const Plan& plan() const { return plan_; }
  /// Whether the group is of a stage of this rank.
  bool holds(const GroupPlan& group) const { return plan_.holds(group, rank_); }
  /// The axis that cuts rows; null if ranks have whole rows.
  const std::shared_ptr<const ContextAxis>& context_axis() const { return context_axis_; }

  /// Begins a step: the last step's gradients are forgotten. Raises Error if the last step was
  /// neither applied by update() nor given up by discard(), or if a parameter has been frozen or
  /// unfrozen since the strategy was made.
  Step start_step();
  /// Runs `write`, which may overwrite the shards' data, for example to load weights. No gather
  /// reads the data at that time, and every later use of the parameters sees the new values. Then
  /// queues the first gathers of the next forward pass.
  /// A collective. Raises Error within a step.
  void write_masters(const std::function<void()>& write);
  /// Runs `forget` in every write of the masters, when no gather reads them: for numbers that rounding records
  /// (Parameter::round). Later gathers record those of the new values.
  void at_every_write(std::function<void()> forget) { at_every_write_ = std::move(forget); }

  /// The compute stream waits for the last update first.
  const std::vector<Shard>& shards() const override;
  /// The compute stream waits for an update by units. Every use of masters, gradients and the optimizer's
  /// state begins with it, but for those of the units.
  void wait_for_last_update() const;
  std::vector<Parameter> parameters() const override;
  /// For each of shards(), the elements of its data that this rank saves in a checkpoint. Ranks that
  /// hold the same part each save a share of it.
  std::vector<ElementRange> saved_elements() const;
  void visit_whole(
      const Visit& visit,
      const Includes& includes = [](const Parameter&) { return true; }) override;
  /// The exchange of the matrices of these parameters, which the plan lists (ShardingOptions::matrix_dtype). It is
  /// used in update(), and the strategy must outlive it. A collective.
  std::unique_ptr<MatrixExchange> make_matrix_exchange(const Includes& includes);
  /// Bytes that this rank has sent for the rows of experts, which no plan predicts.
  std::int64_t expert_bytes_sent() const;

  void before_forward(Unit& unit) override;
  void after_forward(Unit& unit) override;
  void before_backward(Unit& unit) override;
  void after_backward(Unit& unit) override;

 private:
  friend class Step;

  /// A bucket that has parameters of a unit.
  struct UnitBucket {
    ParameterGroup* group = nullptr;
    int bucket = 0;
    bool first_unit = false;  // of the bucket
    bool last_unit = false;
  };

  /// Gives parameters that ranks share out their exchange, or their axis.
  void share_out_experts();
  void share_out_tensors();
  void make_groups(std::uint64_t seed);
  void share_out_tokens();
  void check_trained_set() const;
  void check_masters(const Unit& unit) const;
  void finish_micro_batch(int chunk);
  void write(const std::function<void()>& write, Writes writes);
  void write_by_unit(const std::function<void(int unit)>& write);
  void masters_changed(Writes writes);
  /// Queues the first gathers of the next forward pass.
  void prefetch_first();
  void end_step();
  GradientNorm gradient_norm();

  const Plan plan_;
  const Units& units_;
  Communicator* const world_;  // null for strategy single
  const int rank_;
  MeshCommunicators communicators_;
  std::vector<Shard> shards_;
  /// Those of this rank's stages, in the order of the plan's.
  std::vector<std::unique_ptr<ParameterGroup>> groups_;
  std::map<const Unit*, std::vector<UnitBucket>> buckets_of_;
  /// Whether the strategy queues work on the communication stream.
  bool uses_communication_stream_;
  std::shared_ptr<const ContextAxis> context_axis_;
  /// The exchange of experts' rows; null where ranks do not share experts out.
  std::shared_ptr<ExpertAxis> expert_axis_;
  /// The exchange of rows and sums; null where no sum is divided.
  std::shared_ptr<TensorRanks> tensor_axis_;
  StepProtocol protocol_;
  std::function<void()> at_every_write_ = [] {};
  /// The end of an update by units.
  mutable std::optional<Event> updated_;
};

/// Plans for this rank's device and the ranks of `world`, and makes the strategy.
std::unique_ptr<Strategy> make_strategy(const Units& units, const ShardingOptions& options,
                                        std::uint64_t seed, Communicator* world);

/// One rank owns every parameter, its gradient and its optimizer state.
inline std::unique_ptr<Strategy> make_single_strategy(const Units& units, std::uint64_t seed) {
  return make_strategy(units, {}, seed, nullptr);
}

}  // namespace tessera
