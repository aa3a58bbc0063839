#include "tools/config/data_sources.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>

#include "runtime/check.h"
#include "tools/config/read_key.h"
#include "tools/config/section_keys.h"
#include "tools/config/yaml_documents.h"

namespace tessera {
namespace {

std::vector<Key> keys_of_entry(TrainingSource& source) {
  return {path_key("path", source.path, ""), number_key("weight", source.weight, kAboveZero, ""),
          whole_number_key("from_step", source.from_step, 1, kMostSteps, ""),
          whole_number_key("until_step", source.until_step, 1, kMostSteps, "")};
}

/// A name of letters, digits, '_', '-' and '.', which stands in metrics and curves.
std::optional<std::string> parse_name(std::string_view text) {
  const bool good = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || ('0' <= c && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  });
  return good ? std::optional(std::string(text)) : std::nullopt;
}

std::vector<Key> keys_of_entry(ValidationSource& source) {
  return {form_key(
              "name", source.name, "a name of letters, digits, _, - and .", parse_name,
              [](const std::string& name) { return name; }, ""),
          path_key("path", source.path, "")};
}

void check_entry(const TrainingSource& source, const std::string& place) {
  check(source.until_step == 0 || source.from_step <= source.until_step,
        "{}: from_step {} is after until_step {}", place, source.from_step, source.until_step);
}

void check_entry(const ValidationSource& source, const std::string& place) {
  check(!source.name.empty(), "{}: the source has no key 'name'", place);
}

template <typename Entry>
Entry read_entry(const YAML::Node& node, const NodePlace& place) {
  check(node.IsMap(), "{}: expected a source such as {{path: data/train.bin}}", place(node));
  Entry entry;
  const std::vector<Key> keys = keys_of_entry(entry);
  std::set<std::string> seen;
  for (const auto& one : node) {
    const std::string here = place(one.first);
    check(one.first.IsScalar() && one.second.IsScalar(), "{}: expected a key and one value", here);
    const std::string name = one.first.Scalar();
    check(seen.insert(name).second, "{}: key '{}' occurs twice", here, name);
    read_key(find_key(keys, name, here), one.second.Scalar(), here);
  }
  check(!entry.path.empty(), "{}: the source has no key 'path'", place(node));
  check_entry(entry, place(node));
  return entry;
}

void check_list(const std::vector<TrainingSource>&, const std::string&) {}

void check_list(const std::vector<ValidationSource>& sources, const std::string& place) {
  std::set<std::string> names;
  for (const ValidationSource& source : sources) {
    check(names.insert(source.name).second, "{}: two sources have the name {}", place, source.name);
  }
}

template <typename Entry>
std::vector<Entry> read_entries(const YAML::Node& list, const NodePlace& place) {
  std::vector<Entry> entries;
  for (const YAML::Node& node : list) entries.push_back(read_entry<Entry>(node, place));
  check(!entries.empty(), "{}: the list is empty", place(list));
  check_list(entries, place(list));
  return entries;
}

/// Whether a text is a list: one of the command line, or of a written configuration.
bool is_list(std::string_view text) {
  return text.starts_with("[{");
}

template <typename Entry>
std::optional<std::vector<Entry>> parse_entries(std::string_view text) {
  return parse_yaml_list<std::vector<Entry>>(
      text, [](const YAML::Node& list) { return read_entries<Entry>(list, place_in_text); });
}

/// A list of the keys that are not as they are by default.
template <typename Entry>
std::string text_of(const std::vector<Entry>& entries) {
  YAML::Emitter emitter;
  emitter << YAML::Flow << YAML::BeginSeq;
  for (Entry entry : entries) {
    Entry usual;
    const std::vector<Key> keys = keys_of_entry(entry), usual_keys = keys_of_entry(usual);
    emitter << YAML::BeginMap;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (keys[i].text() == usual_keys[i].text()) continue;
      emitter << YAML::Key << keys[i].name << YAML::Value;
      // A path may have any characters.
      keys[i].name == "path" ? emitter << YAML::DoubleQuoted << keys[i].text()
                             : emitter << keys[i].text();
    }
    emitter << YAML::EndMap;
  }
  emitter << YAML::EndSeq;
  return emitter.c_str();
}

}  // namespace

std::string to_string(const TrainingData& data) {
  const bool is_path = data.sources.size() == 1 && data.sources[0] == TrainingSource{data.first()};
  if (data.empty() || is_path) return data.first().string();
  return text_of(data.sources);
}

Key training_data_key(TrainingData& data) {
  Key key = form_key(
      "data.train", data, "a path, or a list of sources such as {path: a.bin, weight: 0.5}",
      [](std::string_view text) -> std::optional<TrainingData> {
        TrainingData read(text);
        if (!is_list(text)) return read;
        auto sources = parse_entries<TrainingSource>(text);
        if (!sources) return std::nullopt;
        read.sources = std::move(*sources);
        return read;
      },
      [](const TrainingData& value) { return to_string(value); },
      "Token files to train on, as `tessera prepare` writes them: llm.c's format, with ids "
      "of 16 or 32 bits. A path, a pattern such as `data/train_*.bin`, or several "
      "separated by commas; or `synthetic:uniform`, `synthetic:zipf` or "
      "`synthetic:copy`. Or a mixture, a list of `{path, weight}`; `from_step` and `until_step` "
      "bound the steps of a source. Training needs this.");
  key.parse_list = [&data](const YAML::Node& list, const NodePlace& place) {
    data.sources = read_entries<TrainingSource>(list, place);
  };
  return key;
}

Key validation_key(std::vector<ValidationSource>& sources) {
  Key key = form_key(
      "data.validation", sources, "a list of sources such as {name: web, path: val.bin}",
      [](std::string_view text) -> std::optional<std::vector<ValidationSource>> {
        if (text.empty()) return std::vector<ValidationSource>();
        if (!is_list(text)) return std::nullopt;
        return parse_entries<ValidationSource>(text);
      },
      [](const std::vector<ValidationSource>& value) {
        return value.empty() ? std::string() : text_of(value);
      },
      "In place of `data.val`: a list of `{name, path}`. Metrics have the loss and the perplexity "
      "of each source, and the loss of all their tokens. Empty = `data.val` alone.");
  key.parse_list = [&sources](const YAML::Node& list, const NodePlace& place) {
    sources = read_entries<ValidationSource>(list, place);
  };
  return key;
}

}  // namespace tessera
