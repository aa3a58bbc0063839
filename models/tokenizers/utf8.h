// Reading UTF-8 strictly (RFC 3629), repairing it, and stripping it of white space.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

struct CodePoint {
  char32_t value;
  std::size_t bytes;  // 1 to 4
};

/// The code point that starts at byte `position`, which must lie inside the text. Raises Error with
/// the position if no valid one starts there: stray or missing continuation bytes, overlong forms,
/// surrogates and values above U+10FFFF are all invalid.
CodePoint code_point_at(std::string_view text, std::size_t position);

/// Appends a code point.
void append_utf8(std::string& text, char32_t code_point);

/// Whether all of the text is valid UTF-8.
bool is_valid_utf8(std::string_view text);

/// The text with U+FFFD in place of every maximal invalid part (Unicode, chapter 3, "U+FFFD
/// substitution of maximal subparts"), as Python's errors="replace" and Rust's from_utf8_lossy do.
std::string repaired_utf8(std::string_view text);

/// Unicode's White_Space.
bool is_white_space(char32_t point);

/// The text (valid UTF-8) in lower case, by Unicode's mappings of one code point to one.
std::string lower_case(std::string_view text);
/// The same with its first code point in title case, as Python's capitalize() does.
std::string capitalized(std::string_view text);

using IsSpace = bool (*)(char32_t point);
/// The text without the white space at its left end, its right end, or both. Invalid parts are none.
std::string_view stripped(std::string_view text, bool left, bool right,
                          IsSpace is_space = is_white_space);

}  // namespace tessera
