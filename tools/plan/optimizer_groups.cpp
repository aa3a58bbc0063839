#include "tools/plan/optimizer_groups.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "tools/train/optimizer.h"

namespace tessera {

std::vector<PlannedGroup> planned_groups(const PlanFigures& figures) {
  const ParameterGroups groups = parameter_groups(figures.run.config.optimizer, *figures.model);
  std::vector<PlannedGroup> planned;
  for (const OptimizerGroup& group : groups.groups) planned.push_back({.group = group});
  for (const Parameter& parameter : parameters_of(*figures.model)) {
    PlannedGroup& mine = planned[groups.place.at(parameter.name())];
    if (!parameter.trainable() && !mine.group.frozen) continue;  // by model.frozen
    ++mine.tensors;
    mine.elements += parameter.numel();
    if (groups.decays(parameter)) mine.weight_decay = mine.group.settings.weight_decay;
    if (mine.group.frozen) continue;
    const OptimizerConfig settings = groups.settings_of(parameter);
    mine.rules.insert(enum_name(settings.name));
    mine.state_bytes +=
        parameter.numel() * state_bytes_per_element(settings, figures.run.config.train);
  }
  std::erase_if(planned, [](const PlannedGroup& one) { return one.tensors == 0; });
  return planned;
}

std::string groups_table(const PlanFigures& figures) {
  const std::vector<PlannedGroup> groups = planned_groups(figures);
  std::size_t width = 14;
  for (const PlannedGroup& one : groups) width = std::max(width, one.group.match.size());
  std::string text =
      fmt::format("  {:<{}} {:>8} {:>8} {:>14} {:>16} {:>13} {:>7}\n", "group", width + 2, "rule",
                  "tensors", "elements", "bytes of state", "learning rate", "decay");
  for (const PlannedGroup& one : groups) {
    const OptimizerConfig& settings = one.group.settings;
    const bool frozen = one.group.frozen;
    text += fmt::format("  {:<{}} {:>8} {:>8} {:>14} {:>16} {:>13} {:>7}\n", one.group.match,
                        width + 2, frozen ? "frozen" : fmt::format("{}", fmt::join(one.rules, "+")),
                        one.tensors, one.elements, one.state_bytes,
                        frozen ? "-" : fmt::format("{}", settings.learning_rate),
                        frozen ? "-" : fmt::format("{}", one.weight_decay));
  }
  return text;
}

}  // namespace tessera
