#include "sharding/plan/options.h"

#include <algorithm>

#include "runtime/check.h"
#include "runtime/text.h"

namespace tessera {
namespace {

constexpr std::string_view kFlat = "_flat";

PlacementRule parse_rule(std::string_view text) {
  const std::size_t arrow = text.find("->");
  check(arrow != std::string_view::npos && !trimmed(text.substr(0, arrow)).empty(),
        "the rule '{}' has another form than 'name pattern -> strategy'", text);
  std::string_view name = trimmed(text.substr(arrow + 2));
  const bool flat = name.ends_with(kFlat);
  if (flat) name.remove_suffix(kFlat.size());
  return {.pattern = std::string(trimmed(text.substr(0, arrow))),
          .strategy = strategy_from_name(name),
          .flatten_parameters = flat};
}

}  // namespace

bool matches_pattern(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern.front() != '*') {
    return !name.empty() && name.front() == pattern.front() &&
           matches_pattern(pattern.substr(1), name.substr(1));
  }
  for (std::size_t skipped = 0; skipped <= name.size(); ++skipped) {
    if (matches_pattern(pattern.substr(1), name.substr(skipped))) return true;
  }
  return false;
}

std::vector<PlacementRule> parse_placement_rules(std::string_view text) {
  std::vector<PlacementRule> rules;
  for (const std::string_view part : split(text, ',')) rules.push_back(parse_rule(part));
  return rules;
}

std::string to_string(const std::vector<PlacementRule>& rules) {
  std::string text;
  for (const PlacementRule& rule : rules) {
    text += fmt::format("{}{} -> {}{}", text.empty() ? "" : ", ", rule.pattern,
                        name_of(rule.strategy), rule.flatten_parameters ? kFlat : "");
  }
  return text;
}

bool has_hsdp(const ShardingOptions& options) {
  return options.strategy == StrategyKind::hsdp ||
         std::any_of(options.rules.begin(), options.rules.end(),
                     [](const PlacementRule& rule) { return rule.strategy == StrategyKind::hsdp; });
}

}  // namespace tessera
