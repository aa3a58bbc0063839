// Suggests the name that a misspelt one was meant to be.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

/// The least number of insertions, deletions and replacements that turn `a` into `b`
/// (Levenshtein's distance).
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate nearest to `name`; no value if no candidate is near. Dotted names are also compared
/// by their last part alone, so a key in the wrong section finds its section.
std::optional<std::string> nearest_name(std::string_view name,
                                        std::span<const std::string> candidates);

}  // namespace tessera
