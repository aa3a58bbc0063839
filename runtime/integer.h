// Integer arithmetic for sizes and grids.
#pragma once

#include <cstdint>

namespace tessera {

/// a / b, rounded up. Both are at least 0, and b at least 1.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

/// The smallest multiple of `multiple` that is at least `value`.
constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return ceil_div(value, multiple) * multiple;
}

}  // namespace tessera
