#include "tools/train/parameter_groups.h"

#include <algorithm>
#include <memory>
#include <set>

#include "optim/decay_rule.h"
#include "runtime/check.h"
#include "runtime/nearest.h"
#include "runtime/text.h"
#include "sharding/plan/options.h"

namespace tessera {
namespace {

bool is_vector(const Parameter& parameter) {
  return !decays(parameter.name(), parameter.shape());
}

/// The matrices of the units at the model's ends.
std::set<std::string> tables_of(const LanguageModel& model) {
  std::vector<const Unit*> ends = {model.units().front().get()};
  if (!ends.front()->at_both_ends()) ends.push_back(model.units().back().get());
  std::set<std::string> names;
  for (const Unit* unit : ends) {
    for (const Parameter& parameter : unit->parameters()) {
      if (!is_vector(parameter)) names.insert(parameter.name());
    }
  }
  return names;
}

class Matcher {
 public:
  explicit Matcher(const LanguageModel& model)
      : parameters_(parameters_of(model)), tables_(tables_of(model)) {}

  const std::vector<Parameter>& parameters() const { return parameters_; }

  /// `one`: a pattern or a word.
  bool matches(std::string_view one, const Parameter& parameter) const {
    const bool table = tables_.contains(parameter.name());
    if (one == "vectors") return is_vector(parameter);
    if (one == "tables") return table;
    if (one == "matrices") return !is_vector(parameter) && !table;
    return matches_pattern(one, parameter.name());
  }

  bool matches(const OptimizerGroup& group, const Parameter& parameter) const {
    if (!group.listed && group.match == "others") return true;
    const std::vector<std::string_view> parts = split(group.match, ',');
    return std::any_of(parts.begin(), parts.end(),
                       [&](std::string_view one) { return matches(one, parameter); });
  }

  void check_known(const OptimizerGroup& group, std::size_t number) const {
    for (const std::string_view one : split(group.match, ',')) {
      const bool known =
          std::any_of(parameters_.begin(), parameters_.end(),
                      [&](const Parameter& parameter) { return matches(one, parameter); });
      check(known, "group {}: '{}' matches no parameter; {}", number, one, nearest_to(one));
    }
  }

 private:
  /// A similar name or word, or the pattern with a similar part of a name.
  std::string nearest_to(std::string_view pattern) const {
    std::vector<std::string> names = {"vectors", "tables", "matrices"}, parts;
    for (const Parameter& parameter : parameters_) {
      names.push_back(parameter.name());
      for (const std::string_view part : split(parameter.name(), '.')) parts.emplace_back(part);
    }
    if (const auto nearest = nearest_name(pattern, names)) {
      return fmt::format("did you mean '{}'?", *nearest);
    }
    for (const std::string_view part : split(pattern, '.')) {
      const bool known = std::find(parts.begin(), parts.end(), part) != parts.end();
      if (known || part.find_first_of("*?") != part.npos) continue;
      const auto nearest = nearest_name(part, parts);
      if (!nearest) break;
      std::string better(pattern);
      better.replace(static_cast<std::size_t>(part.data() - pattern.data()), part.size(), *nearest);
      return fmt::format("did you mean '{}'?", better);
    }
    return fmt::format("names are like '{}'", names.back());
  }

  std::vector<Parameter> parameters_;
  std::set<std::string> tables_;
};

}  // namespace

OptimizerConfig settings_of_rest(const OptimizerGroup& group) {
  OptimizerConfig settings = group.settings;
  if (settings.name == OptimizerKind::muon) settings.name = OptimizerKind::adamw;
  return settings;
}

OptimizerConfig ParameterGroups::settings_of(const Parameter& parameter) const {
  const OptimizerGroup& group = of(parameter);
  return matrices.contains(parameter.name()) ? group.settings : settings_of_rest(group);
}

std::function<std::optional<DType>(const Parameter&)> matrix_dtypes(
    const OptimizerConfig& optimizer, const LanguageModel& model) {
  const auto groups = std::make_shared<ParameterGroups>(parameter_groups(optimizer, model));
  const bool has_muon =
      std::any_of(groups->groups.begin(), groups->groups.end(),
                  [](const auto& g) { return g.settings.name == OptimizerKind::muon; });
  if (!has_muon) return {};
  return [groups](const Parameter& parameter) -> std::optional<DType> {
    const OptimizerConfig settings = groups->settings_of(parameter);
    if (settings.name != OptimizerKind::muon) return std::nullopt;
    return settings.muon_ns_dtype;
  };
}

bool ParameterGroups::decays(const Parameter& parameter) const {
  return of(parameter).gives_decay || !is_vector(parameter);
}

ParameterGroups parameter_groups(const OptimizerConfig& optimizer, const LanguageModel& model) {
  const Matcher matcher(model);
  ParameterGroups result{.groups = optimizer_groups(optimizer), .place = {}, .matrices = {}};
  const std::vector<OptimizerGroup>& groups = result.groups;
  std::vector<bool> used(groups.size());
  for (const Parameter& parameter : matcher.parameters()) {
    const auto first = std::find_if(groups.begin(), groups.end(), [&](const OptimizerGroup& group) {
      return matcher.matches(group, parameter);
    });
    const std::size_t place = static_cast<std::size_t>(first - groups.begin());
    result.place[parameter.name()] = place;
    if (matcher.matches("matrices", parameter)) result.matrices.insert(parameter.name());
    used[place] = true;
  }
  for (std::size_t i = 0; i < groups.size() && groups[i].listed; ++i) {
    matcher.check_known(groups[i], i + 1);
    check(used[i], "group {}: groups before it have all parameters that '{}' matches", i + 1,
          groups[i].match);
  }
  return result;
}

void freeze_groups(const OptimizerConfig& optimizer, const LanguageModel& model) {
  const ParameterGroups groups = parameter_groups(optimizer, model);
  const std::vector<Parameter> parameters = parameters_of(model);
  const bool trains =
      std::any_of(parameters.begin(), parameters.end(), [&](const Parameter& parameter) {
        return parameter.trainable() && !groups.of(parameter).frozen;
      });
  check(trains, "all parameters are in frozen groups; none is left to train");
  for (const Parameter& parameter : parameters) {
    if (groups.of(parameter).frozen) parameter.set_trainable(false);
  }
}

}  // namespace tessera
