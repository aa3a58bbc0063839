#include "optim/groups.h"

#include <iterator>
#include <utility>

#include "runtime/check.h"

namespace tessera {

OptimizerGroups::OptimizerGroups(std::vector<Group> groups) : groups_(std::move(groups)) {
  check(!groups_.empty(), "optimizer groups: there are 0 groups; expected at least 1");
  for (std::size_t i = 0; i < groups_.size(); ++i) groups_[i].optimizer->place_ = i;
}

std::vector<double> OptimizerGroups::learning_rates(std::int64_t step) const {
  std::vector<double> rates;
  for (const Group& group : groups_) rates.push_back(learning_rate_at(group.schedule, step));
  return rates;
}

void OptimizerGroups::step(std::span<const double> learning_rates,
                           const GradientScale& gradient_scale) {
  check(learning_rates.size() == groups_.size(),
        "optimizer groups: there are {} learning rates for {} groups", learning_rates.size(),
        groups_.size());
  for (const Group& group : groups_) group.optimizer->check_gradients();
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    groups_[i].optimizer->step(learning_rates[i], gradient_scale);
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
  return all;
}

}  // namespace tessera
