// Reading UTF-8 strictly (RFC 3629).
#pragma once

#include <cstddef>
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

}  // namespace tessera
