// OptimizerGroups: the optimizers of a model, each with a group of the parameters.
//
// An Optimizer is one rule with one learning rate over a list of shards. A run may have several: AdamW
// with another learning rate for tables, or SGD for one layer. They make their steps together, so all
// have done equally many updates. A gradient is clipped by the norm of all groups.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "optim/ema.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"

namespace tessera {

class OptimizerGroups {
 public:
  struct Group {
    std::unique_ptr<Optimizer> optimizer;
    ScheduleOptions schedule;
  };

  /// At least one. No parameter is in two groups. `ema_decay` above 0: averages of all weights follow the
  /// updates.
  OptimizerGroups(std::vector<Group> groups, double ema_decay);

  const std::vector<Group>& groups() const { return groups_; }

  /// The learning rate of each group in `step`, counted from 0; then the averages' share.
  std::vector<double> learning_rates(std::int64_t step) const;

  /// Optimizer::step() of every group with its learning rate, then `finish`, which may change the weights
  /// once more; then the averages follow. Raises Error before anything is changed if a gradient of any group is
  /// missing or does not fit.
  void step(std::span<const double> learning_rates, const GradientScale& gradient_scale = {},
            const std::function<void()>& finish = {});
  /// step() without `finish` in parts, as in Optimizer. Rates and scale are kept for the parts.
  void start_step(std::span<const double> learning_rates, const GradientScale& gradient_scale);
  void update_unit(int unit);

  /// These are as in Optimizer, for all groups.
  void step_was_skipped();
  std::int64_t steps() const { return groups_.front().optimizer->steps(); }
  void set_steps(std::int64_t steps);
  /// With "<parameter>.ema", the averages.
  NamedTensors state() const;
  /// By the parameters' names; none without averages.
  NamedTensors averages() const { return ema_ ? ema_->averages() : NamedTensors(); }

 private:
  void update_groups(int unit);

  std::vector<Group> groups_;
  std::optional<Ema> ema_;
  // The numbers of the update that was begun last.
  std::vector<double> learning_rates_;
  GradientScale scale_;
};

}  // namespace tessera
