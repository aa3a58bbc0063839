// UnitWork: the floating-point operations of each unit, for the log of a dry run.
#pragma once

#include <cstdint>
#include <functional>

#include "autograd/unit.h"
#include "models/language_model.h"
#include "runtime/stream_log.h"
#include "sharding/plan/plan.h"

namespace tessera {

/// Tells the runs of a unit at both ends apart: in turn the embedding and the head, and in a pipeline the one
/// of the rank's stage.
class HeadRuns {
 public:
  HeadRuns(const Plan& plan, int rank);
  /// Whether the run of the unit that begins is the head's. Asked once for every run.
  bool next_is_head(const Unit& unit);

 private:
  const bool in_pipeline_, last_stage_;
  bool at_end_ = false;
};

/// Stands between the units and other hooks, and logs the work of each pass behind them. The
/// operations of all passes of all ranks add up to training_flops(). Each weight counts 2 per token in forward, 2 in
/// backward and 2 more there if it is trained. The head writes its gradients in forward, so all its
/// operations count there. Checkpointed units add their forward pass to the backward pass. All of a
/// pass is one piece of work but products that rows travel before, between and behind: those of experts
/// (autograd/experts.cpp), and of tensor ranks by rank (autograd/operations/travelling_rows.h). These log
/// themselves. Computed again, they count as forward.
/// Where a pipeline splits backward, the gradients of weights are a second piece, in their own pass.
class UnitWork final : public UnitHooks {
 public:
  /// A micro-batch of `rows` sequences of `length` tokens, before the plan's ranks share them out. Does not attach
  /// itself to the units.
  UnitWork(LanguageModel& model, UnitHooks& next, const Plan& plan, int rank, std::int64_t rows,
           std::int64_t length);

  void before_forward(Unit& unit) override;
  void after_forward(Unit& unit) override { next_.after_forward(unit); }
  void before_backward(Unit& unit) override;
  void after_backward(Unit& unit) override { next_.after_backward(unit); }

 private:
  /// This rank's operations of a product with each of a block's weights, or with those for which `includes` is true.
  /// Products that log themselves are left out.
  double products(const Unit& unit, const std::function<bool(const Parameter&)>& includes) const;
  /// A block's forward pass.
  Work forward(const Unit& unit) const;

  LanguageModel& model_;
  UnitHooks& next_;
  const int tensor_ranks_;
  const double tokens_;
  /// This rank's operations of attention in a block's forward pass.
  const double attention_;
  const bool splits_backward_;
  HeadRuns heads_;
};

}  // namespace tessera
