// The group of optimizer.groups that each parameter of a model is in.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "models/language_model.h"
#include "tools/config/optimizer_groups.h"

namespace tessera {

struct ParameterGroups {
  std::vector<OptimizerGroup> groups;
  /// By the parameter's name: the place of its group.
  std::map<std::string, std::size_t> place;
  /// The names of all matrices and stacks of experts.
  std::set<std::string> matrices;

  const OptimizerGroup& of(const Parameter& parameter) const {
    return groups[place.at(parameter.name())];
  }
  /// The settings of the parameter's update: its group's, but adamw for a table or a vector in a group of muon.
  OptimizerConfig settings_of(const Parameter& parameter) const;
  /// Whether weight decay acts on the parameter.
  bool decays(const Parameter& parameter) const;
};

/// The settings of those parameters in the group that the group's rule does not suit: muon's as adamw's.
OptimizerConfig settings_of_rest(const OptimizerGroup& group);

/// Raises Error if a pattern of a group matches no parameter, or if other groups have all that a group
/// matches.
ParameterGroups parameter_groups(const OptimizerConfig& optimizer, const LanguageModel& model);

/// For ShardingOptions::matrix_dtype: that of the parameters which muon updates. Empty if no group has muon.
std::function<std::optional<DType>(const Parameter&)> matrix_dtypes(
    const OptimizerConfig& optimizer, const LanguageModel& model);

/// Makes the parameters of frozen groups untrainable. Raises Error as above, or if nothing would be left
/// to train.
void freeze_groups(const OptimizerConfig& optimizer, const LanguageModel& model);

}  // namespace tessera
