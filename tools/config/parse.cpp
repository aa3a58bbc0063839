#include "tools/config/parse.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <vector>

#include "runtime/check.h"
#include "runtime/file.h"
#include "runtime/json.h"
#include "tools/config/keys.h"
#include "tools/config/read_key.h"
#include "tools/config/yaml_documents.h"

namespace tessera {
namespace {

/// Whether a text has printable ASCII only, as every name has.
bool is_printable(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return ' ' <= c && c <= '~'; });
}

bool is_section(const std::string& name) {
  return std::any_of(sections().begin(), sections().end(),
                     [&](const Section& section) { return section.name == name; });
}

/// The configuration that is read, and its table of keys.
struct Target {
  explicit Target(Config& target) : config(target), keys(keys_of(target)) {}

  /// `place` is where the text was found: "run.yaml:12" or "command line".
  void set(const std::string& name, const std::string& text, const std::string& place) const {
    read_key(find_key(keys, name, place), text, place);
    config.places[name] = place;
  }

  /// False if there is no key of this name that has lists.
  bool set_list(const std::string& name, const YAML::Node& list, const std::string& place,
                const NodePlace& place_of) const {
    const auto key = std::find_if(keys.begin(), keys.end(),
                                  [&](const Key& candidate) { return candidate.name == name; });
    if (key == keys.end() || !key->parse_list) return false;
    key->parse_list(list, place_of);
    config.places[name] = place;
    return true;
  }

  Config& config;
  std::vector<Key> keys;
};

/// Walks a YAML document and stores its values.
class DocumentReader {
 public:
  DocumentReader(std::string source, const Target& target)
      : source_(std::move(source)), target_(target) {}

  void read(const YAML::Node& document) const {
    if (document.IsNull()) return;
    check(document.IsMap(), "{}: expected sections such as 'model:', got {}", where(document),
          kind_of(document));
    std::set<std::string> seen;
    for (const auto& entry : document) {
      const std::string name = name_of_entry(entry.first);
      check_section_name(name, entry.first);
      check(seen.insert(name).second, "{}: section '{}' occurs twice", where(entry.first), name);
      read_section(name, entry.second, entry.first);
    }
  }

 private:
  void check_section_name(const std::string& name, const YAML::Node& node) const {
    if (is_section(name)) return;
    std::vector<std::string> candidates;
    for (const Section& section : sections()) candidates.push_back(section.name);
    for (const Key& key : target_.keys) candidates.push_back(key.name);
    fail("{}: unknown section '{}'; {}", where(node), name, did_you_mean(name, candidates));
  }

  void read_section(const std::string& section, const YAML::Node& values,
                    const YAML::Node& heading) const {
    if (values.IsNull()) return;  // a heading with every key commented out
    check(values.IsMap(), "{}: section '{}': expected keys with values, got {}", where(heading),
          section, kind_of(values));
    std::set<std::string> seen;
    for (const auto& entry : values) {
      const std::string name = section + "." + name_of_entry(entry.first);
      check(seen.insert(name).second, "{}: key '{}' occurs twice", where(entry.first), name);
      const auto place_of = [&](const YAML::Node& node) { return where(node) + ": " + name; };
      const bool is_list = entry.second.IsSequence();
      if (is_list && target_.set_list(name, entry.second, where(entry.first), place_of)) continue;
      check(entry.second.IsScalar() || entry.second.IsNull(), "{}: {}: expected one value, got {}",
            where(entry.first), name, kind_of(entry.second));
      // `val:` with nothing after it is the empty text.
      target_.set(name, entry.second.IsNull() ? "" : entry.second.Scalar(), where(entry.first));
    }
  }

  std::string name_of_entry(const YAML::Node& node) const {
    check(node.IsScalar() && is_printable(node.Scalar()), "{}: expected a name, got {}",
          where(node), kind_of(node));
    return node.Scalar();
  }

  std::string where(const YAML::Node& node) const {
    return fmt::format("{}:{}", source_, node.Mark().line + 1);  // yaml-cpp counts from 0
  }

  static std::string kind_of(const YAML::Node& node) {
    if (node.IsMap()) return "a map";
    if (node.IsSequence()) return "a list";
    if (node.IsScalar()) return excerpt(node.Scalar());
    return "nothing";
  }

  std::string source_;
  const Target& target_;
};

/// Advice if a line is indented with a TAB, which YAML does not allow.
std::string tab_hint(const std::string& yaml, int line) {
  std::istringstream lines(yaml);
  std::string text;
  for (int i = 0; i <= line; ++i) std::getline(lines, text);
  const std::size_t indent = text.find_first_not_of(" \t");
  const bool has_tab = text.substr(0, indent).find('\t') != std::string::npos;
  return has_tab ? "; the line is indented with a TAB, and YAML allows spaces only" : "";
}

/// Advice if a value begins with '*', which stands for an alias in YAML.
std::string quote_hint(const std::string& yaml, int line) {
  std::istringstream lines(yaml);
  std::string text;
  for (int i = 0; i <= line; ++i) std::getline(lines, text);
  const bool has_alias = text.find(": *") != std::string::npos;
  return has_alias ? "; put a value that begins with '*' in quotes" : "";
}

/// The documents in a text, one at most; an empty text has none.
std::vector<YAML::Node> documents_in(const std::string& yaml, const std::string& source) {
  try {
    return yaml_documents(yaml, 1);
  } catch (const YAML::Exception& error) {
    fail("{}:{}: not valid YAML: {}{}{}", source, error.mark.line + 1,
         is_printable(error.msg) ? error.msg : excerpt(error.msg), tab_hint(yaml, error.mark.line),
         quote_hint(yaml, error.mark.line));
  } catch (const Error& error) {
    fail("{}: {}", source, error.what());
  }
}

void apply_override(const Target& target, const std::string& text, const std::string& place) {
  const std::size_t equals = text.find('=');
  check(equals != std::string::npos, "{}: '{}' is not of the form key=value", place, text);
  target.set(text.substr(0, equals), text.substr(equals + 1), place);
}

}  // namespace

Config load_config(const std::filesystem::path& file, std::span<const std::string> overrides) {
  return parse_config(read_text_file(file), file.string(), overrides);
}

Config parse_config(const std::string& yaml, const std::string& source,
                    std::span<const std::string> overrides) {
  Config config;
  const Target target(config);
  const std::vector<YAML::Node> documents = documents_in(yaml, source);
  for (const YAML::Node& document : documents) DocumentReader(source, target).read(document);
  for (const std::string& text : overrides) apply_override(target, text, "command line");
  return config;
}

void set_keys(Config& config, std::span<const std::string> settings, const std::string& place) {
  const Target target(config);
  for (const std::string& text : settings) apply_override(target, text, place);
}

std::string to_yaml(const Config& config) {
  Config copy = config;
  const std::vector<Key> keys = keys_of(copy);
  YAML::Emitter emitter;
  emitter << YAML::BeginMap;
  for (const Section& section : sections()) {
    emitter << YAML::Key << section.name << YAML::Value << YAML::BeginMap;
    for (const Key& key : keys) {
      if (key.section() != section.name) continue;
      const std::string leaf = key.name.substr(section.name.size() + 1);
      const std::string text = key.text();
      emitter << YAML::Key << leaf << YAML::Value;
      key.parse_list && !text.empty() ? emitter << YAML::Load(text) : emitter << text;
    }
    emitter << YAML::EndMap;
  }
  emitter << YAML::EndMap;
  return std::string(emitter.c_str()) + "\n";
}

nlohmann::ordered_json config_entries(const Config& config) {
  Config copy = config;
  nlohmann::ordered_json entries;
  for (const Key& key : keys_of(copy)) entries[key.name] = key.text();
  return entries;
}

void check_with_place(const Config& config, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    const std::string message = error.what();
    const std::string* place = nullptr;
    std::size_t first = std::string::npos;
    for (const auto& [key, where] : config.places) {
      const std::size_t found = message.find(key);
      if (found >= first) continue;
      first = found;
      place = &where;
    }
    if (place == nullptr) throw;
    fail("{}: {}", *place, message);
  }
}

void check_key(const Config& config, std::string_view key, const std::function<void()>& body) {
  check_with_place(config, [&] {
    try {
      body();
    } catch (const Error& error) {
      const std::string_view message = error.what();
      if (message.find(key) != message.npos) throw;
      fail("{}: {}", key, message);
    }
  });
}

}  // namespace tessera
