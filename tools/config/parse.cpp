#include "tools/config/parse.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>
#include <vector>

#include "runtime/check.h"
#include "runtime/file.h"
#include "runtime/nearest.h"
#include "tools/config/keys.h"

namespace tessera {
namespace {

std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates) {
  const std::optional<std::string> nearest = nearest_name(name, candidates);
  if (!nearest) return "`tessera config-reference` lists what there is";
  if (*nearest != name) return fmt::format("did you mean '{}'?", *nearest);
  // A key's full name where a section should stand.
  const std::size_t dot = nearest->find('.');
  return fmt::format("write '{}:' inside the section '{}:'", nearest->substr(dot + 1),
                     nearest->substr(0, dot));
}

std::vector<std::string> names_of(const std::vector<Key>& keys) {
  std::vector<std::string> names;
  for (const Key& key : keys) names.push_back(key.name);
  return names;
}

bool is_section(const std::string& name) {
  return std::any_of(sections().begin(), sections().end(),
                     [&](const Section& section) { return section.name == name; });
}

/// `where` says who gave the value: "run.yaml:12" or "command line".
void set_value(const std::vector<Key>& keys, const std::string& name, const std::string& text,
               const std::string& where) {
  const auto key =
      std::find_if(keys.begin(), keys.end(), [&](const Key& k) { return k.name == name; });
  if (key == keys.end()) {
    fail("{}: unknown key '{}'; {}", where, name, did_you_mean(name, names_of(keys)));
  }
  if (!key->parse(text)) fail("{}: {}: expected {}, got '{}'", where, name, key->expected(), text);
}

/// Walks a YAML document and stores what it says.
class DocumentReader {
 public:
  DocumentReader(std::string source, const std::vector<Key>& keys)
      : source_(std::move(source)), keys_(keys) {}

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
    for (const Key& key : keys_) candidates.push_back(key.name);
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
      check(entry.second.IsScalar() || entry.second.IsNull(), "{}: {}: expected one value, got {}",
            where(entry.first), name, kind_of(entry.second));
      // `val:` with nothing after it is the empty text.
      set_value(keys_, name, entry.second.IsNull() ? "" : entry.second.Scalar(),
                where(entry.first));
    }
  }

  std::string name_of_entry(const YAML::Node& node) const {
    check(node.IsScalar(), "{}: expected a name, got {}", where(node), kind_of(node));
    return node.Scalar();
  }

  std::string where(const YAML::Node& node) const {
    return fmt::format("{}:{}", source_, node.Mark().line + 1);  // yaml-cpp counts from 0
  }

  static std::string kind_of(const YAML::Node& node) {
    if (node.IsMap()) return "a map";
    if (node.IsSequence()) return "a list";
    if (node.IsScalar()) return fmt::format("'{}'", node.Scalar());
    return "nothing";
  }

  std::string source_;
  const std::vector<Key>& keys_;
};

/// The documents in a text; an empty text has none.
std::vector<YAML::Node> documents_in(const std::string& yaml, const std::string& source) {
  try {
    return YAML::LoadAll(yaml);
  } catch (const YAML::Exception& error) {
    fail("{}:{}: not valid YAML: {}", source, error.mark.line + 1, error.msg);
  }
}

void apply_override(const std::vector<Key>& keys, const std::string& text) {
  const std::size_t equals = text.find('=');
  check(equals != std::string::npos, "command line: '{}' is not of the form key=value", text);
  set_value(keys, text.substr(0, equals), text.substr(equals + 1), "command line");
}

}  // namespace

Config load_config(const std::filesystem::path& file, std::span<const std::string> overrides) {
  return parse_config(read_text_file(file), file.string(), overrides);
}

Config parse_config(const std::string& yaml, const std::string& source,
                    std::span<const std::string> overrides) {
  Config config;
  const std::vector<Key> keys = keys_of(config);
  const std::vector<YAML::Node> documents = documents_in(yaml, source);
  check(documents.size() <= 1, "{}: expected one YAML document, got {}", source, documents.size());
  for (const YAML::Node& document : documents) DocumentReader(source, keys).read(document);
  for (const std::string& text : overrides) apply_override(keys, text);
  return config;
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
      emitter << YAML::Key << leaf << YAML::Value << key.text();
    }
    emitter << YAML::EndMap;
  }
  emitter << YAML::EndMap;
  return std::string(emitter.c_str()) + "\n";
}

}  // namespace tessera
