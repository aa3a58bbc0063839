#include "tools/config/read_key.h"

#include <algorithm>
#include <optional>

#include "runtime/check.h"
#include "runtime/json.h"
#include "runtime/nearest.h"
#include "tools/config/synonyms.h"

namespace tessera {
namespace {

bool parses(const Key& key, const std::string& text, const std::string& place) {
  try {
    return key.parse(text);
  } catch (const Error& error) {
    fail("{}: {}: {}", place, key.name, error.what());
  }
}

}  // namespace

std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates) {
  if (const std::optional<std::string> synonym = key_synonym(name, candidates)) return *synonym;
  const std::optional<std::string> nearest = nearest_name(name, candidates);
  if (!nearest) return "`tessera config-reference` lists all keys";
  if (*nearest != name) return fmt::format("did you mean '{}'?", *nearest);
  // A key's full name in the place of a section.
  const std::size_t dot = nearest->find('.');
  return fmt::format("write '{}:' inside the section '{}:'", nearest->substr(dot + 1),
                     nearest->substr(0, dot));
}

const Key& find_key(const std::vector<Key>& keys, const std::string& name,
                    const std::string& place) {
  const auto key =
      std::find_if(keys.begin(), keys.end(), [&](const Key& one) { return one.name == name; });
  if (key != keys.end()) return *key;
  std::vector<std::string> names;
  for (const Key& one : keys) names.push_back(one.name);
  fail("{}: unknown key '{}'; {}", place, name, did_you_mean(name, names));
}

void read_key(const Key& key, const std::string& text, const std::string& place) {
  if (parses(key, text, place)) return;
  const std::optional<std::string> other = value_synonym(text);
  const bool helps = other && key.parse(other->substr(0, other->find(' ')));
  fail("{}: {}: expected {}, got {}{}", place, key.name, key.expected, excerpt(text),
       helps ? fmt::format("; write {}", *other) : "");
}

}  // namespace tessera
