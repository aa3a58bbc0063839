#include "sharding/plan/options.h"

#include <algorithm>
#include <charconv>

#include "runtime/check.h"
#include "runtime/text.h"

namespace tessera {
namespace {

constexpr std::string_view kFlat = "_flat";

void set_strategy(PlacementRule& rule, std::string_view name) {
  rule.flatten_parameters = name.ends_with(kFlat);
  if (rule.flatten_parameters) name.remove_suffix(kFlat.size());
  rule.strategy = strategy_from_name(name);
}

/// `word` is "key=value".
void set_setting(PlacementRule& rule, std::string_view word) {
  const std::size_t equals = word.find('=');
  const std::string_view key = word.substr(0, equals);
  const std::string_view value = equals == word.npos ? "" : word.substr(equals + 1);
  if (key == "reshard_after_forward") {
    rule.reshard_group = parse_reshard(value);
    check(rule.reshard_group.has_value(),
          "{}: expected true, false or a number of ranks from 2, got '{}'", key, value);
  } else if (key == "compute_dtype") {
    rule.compute_dtype = dtype_from_name(value);
  } else if (key == "reduce_dtype") {
    rule.reduce_dtype = dtype_from_name(value);
  } else if (key == "offload") {
    rule.offload = offload_from_name(value);
  } else {
    fail(
        "a rule has no setting '{}'; the settings are reshard_after_forward, compute_dtype, "
        "reduce_dtype and offload",
        key);
  }
}

PlacementRule parse_rule(std::string_view text) {
  const std::size_t arrow = text.find("->");
  check(arrow != std::string_view::npos && !trimmed(text.substr(0, arrow)).empty(),
        "the rule '{}' has another form than 'name pattern -> strategy'", text);
  PlacementRule rule = {.pattern = std::string(trimmed(text.substr(0, arrow)))};
  const std::vector<std::string_view> words = split(trimmed(text.substr(arrow + 2)), ' ');
  set_strategy(rule, words.empty() ? "" : words.front());
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (!words[i].empty()) set_setting(rule, words[i]);
  }
  return rule;
}

}  // namespace

std::optional<int> parse_reshard(std::string_view text) {
  if (text == "true") return 0;
  if (text == "false") return 1;
  int ranks = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ranks);
  if (error != std::errc() || end != text.data() + text.size() || ranks < 2) return std::nullopt;
  return ranks;
}

std::string reshard_text(int reshard_group) {
  if (reshard_group < 2) return reshard_group == 0 ? "true" : "false";
  return std::to_string(reshard_group);
}

std::string recipe_of(const PlacementRule& rule) {
  std::string text(name_of(rule.strategy));
  if (rule.flatten_parameters) text += kFlat;
  if (rule.reshard_group) {
    text += fmt::format(" reshard_after_forward={}", reshard_text(*rule.reshard_group));
  }
  if (rule.compute_dtype) text += fmt::format(" compute_dtype={}", name_of(*rule.compute_dtype));
  if (rule.reduce_dtype) text += fmt::format(" reduce_dtype={}", name_of(*rule.reduce_dtype));
  if (rule.offload) text += fmt::format(" offload={}", name_of(*rule.offload));
  return text;
}

bool matches_pattern(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern.front() != '*') {
    const bool fits = pattern.front() == '?' || pattern.starts_with(name.substr(0, 1));
    return !name.empty() && fits && matches_pattern(pattern.substr(1), name.substr(1));
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
    text += fmt::format("{}{} -> {}", text.empty() ? "" : ", ", rule.pattern, recipe_of(rule));
  }
  return text;
}

bool has_hsdp(const ShardingOptions& options) {
  return options.strategy == StrategyKind::hsdp ||
         std::any_of(options.rules.begin(), options.rules.end(),
                     [](const PlacementRule& rule) { return rule.strategy == StrategyKind::hsdp; });
}

int sum_parts_of(const ShardingOptions& options) {
  return options.grid > 0 ? options.grid : options.tensor_parallel;
}

int data_ranks(const ShardingOptions& options, int ranks) {
  const std::int64_t product =
      std::int64_t{options.tensor_parallel} * options.context_parallel * options.pipeline_parallel;
  check(options.tensor_parallel >= 1 && options.context_parallel >= 1 &&
            options.pipeline_parallel >= 1 && ranks % product == 0,
        "the {} ranks are no multiple of sharding.pipeline_parallel {} x "
        "sharding.context_parallel {} x sharding.tensor_parallel {}",
        ranks, options.pipeline_parallel, options.context_parallel, options.tensor_parallel);
  return ranks / (options.tensor_parallel * options.pipeline_parallel);
}

int batch_ranks(const ShardingOptions& options, int ranks) {
  return data_ranks(options, ranks) / options.context_parallel;
}

bool computes_in(const ShardingOptions& options, DType dtype) {
  return options.compute_dtype == dtype ||
         std::any_of(options.rules.begin(), options.rules.end(),
                     [&](const PlacementRule& rule) { return rule.compute_dtype == dtype; });
}

}  // namespace tessera
