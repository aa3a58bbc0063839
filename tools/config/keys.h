// The table of configuration keys, the only place that knows their names.
//
// Four programs are loops over this table: the YAML reader, the reader of command-line overrides,
// the writer of the resolved configuration, and the reference docs/configuration.md.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/config/config.h"

namespace YAML {
class Node;
}

namespace tessera {

/// The place of a node, for messages: "run.yaml:12: optimizer.groups".
using NodePlace = std::function<std::string(const YAML::Node& node)>;

/// One key and the field of a Config that it stands for.
struct Key {
  std::string name;  // "data.batch_size"
  /// The values that parse accepts, for messages: "a whole number from 1 to 4096".
  std::string expected;
  /// Stores the value that a text spells. On any other text it stores nothing, and returns false or
  /// raises an Error that names the mistake.
  std::function<bool(std::string_view text)> parse;
  /// The value as text that parse reads back to the same value.
  std::function<std::string()> text;
  std::string documentation;
  /// Stores the value of a YAML list, or raises an Error that begins with the place of the node with the
  /// mistake. Null: the key has no lists.
  std::function<void(const YAML::Node& list, const NodePlace& place)> parse_list = {};

  std::string_view section() const;
};

struct Section {
  std::string name;
  std::string documentation;
};

/// The sections in the order of the reference.
const std::vector<Section>& sections();

/// The table, section by section. Its keys point into `config`, which must outlive it.
std::vector<Key> keys_of(Config& config);

}  // namespace tessera
