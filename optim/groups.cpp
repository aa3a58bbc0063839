#include "optim/groups.h"

#include <iterator>
#include <utility>

#include "runtime/check.h"

namespace tessera {

OptimizerGroups::OptimizerGroups(std::vector<Group> groups, double ema_decay)
    : groups_(std::move(groups)) {
  check(!groups_.empty(), "optimizer groups: there are 0 groups; expected at least 1");
  for (std::size_t i = 0; i < groups_.size(); ++i) groups_[i].optimizer->place_ = i;
  if (ema_decay == 0.0) return;
  std::vector<ParameterShard> all;
  for (const Group& group : groups_) {
    const std::vector<ParameterShard>& shards = group.optimizer->shards();
    all.insert(all.end(), shards.begin(), shards.end());
  }
  ema_.emplace(all, ema_decay, groups_.size());
}

std::vector<double> OptimizerGroups::learning_rates(std::int64_t step) const {
  std::vector<double> rates;
  for (const Group& group : groups_) rates.push_back(learning_rate_at(group.schedule, step));
  if (ema_) rates.push_back(ema_->share());
  return rates;
}

void OptimizerGroups::step(std::span<const double> learning_rates,
                           const GradientScale& gradient_scale,
                           const std::function<void()>& finish) {
  start_step(learning_rates, gradient_scale);
  update_groups(kEveryUnit);
  if (finish) finish();
  if (ema_) ema_->update_unit(kEveryUnit);
  scale_ = {};
}

void OptimizerGroups::start_step(std::span<const double> learning_rates,
                                 const GradientScale& gradient_scale) {
  const std::size_t count = groups_.size() + (ema_ ? 1 : 0);
  check(learning_rates.size() == count,
        "optimizer groups: there are {} learning rates; expected {}", learning_rates.size(), count);
  for (const Group& group : groups_) group.optimizer->check_gradients();
  for (const Group& group : groups_) group.optimizer->start_step();
  if (ema_) ema_->start_step(gradient_scale);
  learning_rates_.assign(learning_rates.begin(), learning_rates.end());
  scale_ = gradient_scale;
}

void OptimizerGroups::update_unit(int unit) {
  update_groups(unit);
  if (ema_) ema_->update_unit(unit);
}

void OptimizerGroups::update_groups(int unit) {
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    groups_[i].optimizer->update_unit(unit, learning_rates_[i], scale_);
  }
}

void OptimizerGroups::step_was_skipped() {
  for (const Group& group : groups_) group.optimizer->step_was_skipped();
}

void OptimizerGroups::set_steps(std::int64_t steps) {
  for (const Group& group : groups_) group.optimizer->set_steps(steps);
}

NamedTensors OptimizerGroups::state() const {
  NamedTensors all;
  for (const Group& group : groups_) {
    NamedTensors tensors = group.optimizer->state();
    std::move(tensors.begin(), tensors.end(), std::back_inserter(all));
  }
  for (const auto& [name, tensor] : averages()) all.emplace_back(name + ".ema", tensor);
  return all;
}

}  // namespace tessera
