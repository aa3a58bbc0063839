// Small operations on text.
#pragma once

#include <string_view>
#include <vector>

namespace tessera {

/// `text` without the spaces and tabs at its beginning and end.
std::string_view trimmed(std::string_view text);

/// The parts of `text` between separators, each trimmed. No parts for an empty text; a separator at
/// the end begins no part.
std::vector<std::string_view> split(std::string_view text, char separator);

/// Whether `pattern` can be filled in so that it equals `name`: '*' by any text, '?' by a character.
bool matches_pattern(std::string_view pattern, std::string_view name);

}  // namespace tessera
