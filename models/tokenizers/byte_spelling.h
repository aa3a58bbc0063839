// The characters that stand for bytes in a byte-level vocabulary.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera {

/// The character that stands for a byte, as UTF-8. Printable bytes of Latin-1 stand for themselves;
/// the others, in ascending order, are U+0100, U+0101, ... (Radford et al. 2019, bytes_to_unicode
/// in the published code.)
std::string spelling_of_byte(unsigned char byte);

/// The bytes that a token spells. Nothing if one of its characters stands for no byte.
std::optional<std::string> bytes_of_spelling(std::string_view token);

}  // namespace tessera
