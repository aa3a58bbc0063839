// Guessing which name a person meant.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

/// Insertions, deletions and replacements that turn `a` into `b` (Levenshtein's distance).
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate most like `name`, or none if no candidate is much like it. Dotted names are also
/// compared by their last part alone: a key in the wrong section finds its section.
std::optional<std::string> nearest_name(std::string_view name,
                                        std::span<const std::string> candidates);

}  // namespace tessera
