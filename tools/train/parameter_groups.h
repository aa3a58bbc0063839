// The group of optimizer.groups that each parameter of a model is in.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "models/language_model.h"
#include "tools/config/optimizer_groups.h"

namespace tessera {

struct ParameterGroups {
  std::vector<OptimizerGroup> groups;
  /// By the parameter's name: the place of its group.
  std::map<std::string, std::size_t> place;

  const OptimizerGroup& of(const Parameter& parameter) const {
    return groups[place.at(parameter.name())];
  }
  /// Whether weight decay acts on the parameter.
  bool decays(const Parameter& parameter) const;
};

/// Raises Error if a pattern of a group matches no parameter, or if other groups have all that a group
/// matches.
ParameterGroups parameter_groups(const OptimizerConfig& optimizer, const LanguageModel& model);

/// Makes the parameters of frozen groups untrainable. Raises Error as above, or if nothing would be left
/// to train.
void freeze_groups(const OptimizerConfig& optimizer, const LanguageModel& model);

}  // namespace tessera
