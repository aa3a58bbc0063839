// The documents of a YAML text that may be damaged.
#pragma once

#include <yaml-cpp/node/node.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace tessera {

/// The documents of a text, at most `most`; an empty text has none. Raises YAML::Exception, with line
/// and column, if the text is no YAML, and Error if it has more documents than `most` or than lines.
std::vector<YAML::Node> yaml_documents(
    const std::string& text, std::int64_t most = std::numeric_limits<std::int64_t>::max());

}  // namespace tessera
