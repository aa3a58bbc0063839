// The documents of a YAML text that may be damaged.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// The documents of a text, at most `most`; an empty text has none. Raises YAML::Exception, with line
/// and column, if the text is no YAML, and Error if it has more documents than `most` or than lines.
std::vector<YAML::Node> yaml_documents(
    const std::string& text, std::int64_t most = std::numeric_limits<std::int64_t>::max());

/// The list in a text without lines, such as one of the command line: read(list). An empty text is an
/// empty list; no value for other texts.
template <typename List, typename Read>
std::optional<List> parse_yaml_list(std::string_view text, const Read& read) {
  std::vector<YAML::Node> documents;
  try {
    documents = yaml_documents(std::string(text), 1);
  } catch (const YAML::Exception&) {
    return std::nullopt;
  }
  if (documents.empty() || documents[0].IsNull()) return List();
  return documents[0].IsSequence() ? std::optional<List>(read(documents[0])) : std::nullopt;
}

/// The place of a node in such a text: "character 13".
std::string place_in_text(const YAML::Node& node);

}  // namespace tessera
