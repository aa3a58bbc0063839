#include "tools/config/optimizer_groups.h"

#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "runtime/check.h"
#include "runtime/json.h"
#include "runtime/text.h"
#include "tools/config/read_key.h"
#include "tools/config/section_keys.h"
#include "tools/config/yaml_documents.h"

namespace tessera {
namespace {

/// A group as its keys set it.
struct Draft {
  std::string match;
  OptimizerConfig settings;
  double learning_rate_factor = 1.0;
  bool frozen = false;
};

/// Keys of the section that are the whole run's, and the reason.
constexpr std::pair<std::string_view, std::string_view> kOfTheRun[] = {
    {"clip_norm", "the norm that is clipped is that of all gradients"},
    {"qk_clip", "a head's queries and keys may be in several groups"},
    {"master_dtype", "the masters of all groups lie in the same buffers"},
    {"gradient_dtype", "the gradients of all groups lie in the same buffers"},
    {"groups", "a group has no groups"},
};

/// The names that match can list; no value for a text with other characters.
std::optional<std::string> parse_match(std::string_view text) {
  std::vector<std::string_view> parts = split(text, ',');
  for (const std::string_view part : parts) {
    const bool good = !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
      return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || ('0' <= c && c <= '9') ||
             std::string_view("_.-*?").find(c) != std::string_view::npos;
    });
    if (!good) return std::nullopt;
  }
  if (parts.empty()) return std::nullopt;
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// The keys of a group, by their names in it.
std::vector<Key> keys_of_group(Draft& draft) {
  std::vector<Key> keys = {
      form_key(
          "match", draft.match, "names of parameters, in which * and ? may stand, or words",
          parse_match, [](const std::string& match) { return match; }, ""),
      number_key("learning_rate_factor", draft.learning_rate_factor, kFromZero, ""),
      flag_key("frozen", draft.frozen, "")};
  for (Key& key : optimizer_keys(draft.settings)) {
    key.name = key.name.substr(key.name.find('.') + 1);
    const bool of_the_run = std::any_of(std::begin(kOfTheRun), std::end(kOfTheRun),
                                        [&](const auto& one) { return one.first == key.name; });
    if (!of_the_run) keys.push_back(std::move(key));
  }
  return keys;
}

/// Keys of a group that contradict each other.
void check_together(const OptimizerGroupConfig& group, const std::string& place) {
  check(!group.match.empty(), "{}: the group has no key 'match'", place);
  const auto has = [&](const char* key) { return group.keys.contains(key); };
  check(!has("learning_rate") || !has("learning_rate_factor"),
        "{}: learning_rate and learning_rate_factor are both set; leave one out", place);
  const auto frozen = group.keys.find("frozen");
  check(frozen == group.keys.end() || frozen->second == "false" || group.keys.size() == 1,
        "{}: the group is frozen; leave its other keys out", place);
}

OptimizerGroupConfig read_group(const YAML::Node& node, const NodePlace& place) {
  check(node.IsMap(), "{}: expected a group such as {{match: tables, beta2: 0.99}}", place(node));
  Draft draft;
  const std::vector<Key> keys = keys_of_group(draft);
  OptimizerGroupConfig group;
  for (const auto& entry : node) {
    const std::string here = place(entry.first);
    check(entry.first.IsScalar(), "{}: expected a key", here);
    const std::string name = entry.first.Scalar();
    for (const auto& [key, reason] : kOfTheRun) {
      check(name != key, "{}: a group may not have {}: {}", here, name, reason);
    }
    const Key& key = find_key(keys, name, here);
    if (entry.second.IsSequence() && key.parse_list) {
      key.parse_list(entry.second, [&](const YAML::Node& one) { return place(one) + ": " + name; });
    } else {
      check(entry.second.IsScalar(), "{}: {}: expected one value", here, name);
      read_key(key, entry.second.Scalar(), here);
    }
    const bool is_match = name == "match";
    const bool is_new =
        is_match ? group.match.empty() : group.keys.emplace(name, key.text()).second;
    check(is_new, "{}: key '{}' occurs twice", here, name);
    if (is_match) group.match = draft.match;
  }
  check_together(group, place(node));
  return group;
}

std::vector<OptimizerGroupConfig> read_groups(const YAML::Node& list, const NodePlace& place) {
  std::vector<OptimizerGroupConfig> groups;
  for (const YAML::Node& node : list) groups.push_back(read_group(node, place));
  return groups;
}

std::optional<std::vector<OptimizerGroupConfig>> parse_groups(std::string_view text) {
  return parse_yaml_list<std::vector<OptimizerGroupConfig>>(
      text, [](const YAML::Node& list) { return read_groups(list, place_in_text); });
}

std::string text_of(const std::vector<OptimizerGroupConfig>& groups) {
  if (groups.empty()) return "";
  YAML::Emitter emitter;
  emitter << YAML::Flow << YAML::BeginSeq;
  for (const OptimizerGroupConfig& group : groups) {
    emitter << YAML::BeginMap << YAML::Key << "match" << YAML::Value << YAML::DoubleQuoted
            << group.match;
    for (const auto& [key, text] : group.keys) {
      emitter << YAML::Key << key << YAML::Value << text;
    }
    emitter << YAML::EndMap;
  }
  emitter << YAML::EndSeq;
  return emitter.c_str();
}

OptimizerGroup with_settings(const OptimizerConfig& section, const OptimizerGroupConfig& group) {
  Draft draft{.match = group.match, .settings = section};
  draft.settings.groups.clear();
  const std::vector<Key> keys = keys_of_group(draft);
  for (const auto& [name, text] : group.keys) {
    read_key(find_key(keys, name, "optimizer.groups"), text, "optimizer.groups");
  }
  draft.settings.learning_rate *= draft.learning_rate_factor;
  return {.match = group.match,
          .settings = draft.settings,
          .gives_decay = group.keys.contains("weight_decay"),
          .frozen = draft.frozen};
}

}  // namespace

std::vector<OptimizerGroup> optimizer_groups(const OptimizerConfig& section) {
  std::vector<OptimizerGroup> groups;
  for (const OptimizerGroupConfig& group : section.groups) {
    groups.push_back(with_settings(section, group));
  }
  for (const char* name : {"vectors", "tables", "others"}) {
    // Only muon tells tables from other matrices.
    if (name == std::string_view("tables") && section.name != OptimizerKind::muon) continue;
    groups.push_back(with_settings(section, {.match = name}));
    groups.back().listed = false;
  }
  return groups;
}

Key optimizer_groups_key(std::vector<OptimizerGroupConfig>& groups) {
  Key key = form_key(
      "optimizer.groups", groups, "a list of groups such as {match: tables, beta2: 0.99}",
      parse_groups, text_of,
      "Groups of parameters with other settings; the first group that matches a parameter has it. "
      "`match` lists names with `*` and `?`, or `vectors` (norms and biases), `tables` (embeddings "
      "and head), `matrices` (all others). A group may have every key of this section but "
      "`clip_norm`, `qk_clip`, `master_dtype`, `gradient_dtype` and `groups`, also "
      "`learning_rate_factor` and `frozen: true`. Norms and biases decay only in a group with "
      "`weight_decay`.");
  key.parse_list = [&groups](const YAML::Node& list, const NodePlace& place) {
    groups = read_groups(list, place);
  };
  return key;
}

}  // namespace tessera
