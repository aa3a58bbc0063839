// The optimizer's groups on the page of a plan.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "tools/config/optimizer_groups.h"
#include "tools/plan/figures.h"

namespace tessera {

/// A group of optimizer.groups, or a default group, in a model.
struct PlannedGroup {
  OptimizerGroup group;
  /// The names of the rules that its parameters have: muon's matrices have others than its tables.
  std::set<std::string_view> rules = {};
  std::int64_t tensors = 0;
  std::int64_t elements = 0;
  /// For one replica of the model, without padding.
  std::int64_t state_bytes = 0;
  /// 0 where no parameter of the group decays.
  double weight_decay = 0.0;
};

/// Those with parameters. Frozen parameters count in frozen groups only.
std::vector<PlannedGroup> planned_groups(const PlanFigures& figures);

/// A row for each.
std::string groups_table(const PlanFigures& figures);

}  // namespace tessera
