// A token with its marks in 32 bits, as it waits in a spool.
#pragma once

#include <cstdint>

#include "tools/data/mark_file.h"
#include "tools/data/token_file.h"

namespace tessera {

/// Tokens of marked data are below this.
inline constexpr TokenId kMarkedTokens = TokenId{1} << 29;

constexpr TokenId with_marks(std::int32_t token, TokenMarks marks) {
  return static_cast<TokenId>(token) | TokenId{marks} << 29;
}
constexpr TokenId without_marks(TokenId marked) {
  return marked & (kMarkedTokens - 1);
}
constexpr TokenMarks marks_of(TokenId marked) {
  return static_cast<TokenMarks>(marked >> 29);
}

}  // namespace tessera
