// RoPE of one head on the CPU, and the positions of tokens.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

#include "kernels/cpu/numeric.h"
#include "kernels/rope/op.h"
#include "runtime/check.h"

namespace tessera::cpu {

/// y = x rotated, the `half` pairs of one head. y may be x, or rounded to another type. The fma is
/// explicit, so that a token's bits are the same on every device and at every place in the
/// compiler's vectors.
template <RopePairs pairs, typename Y, typename X>
void turn_head(Y* y, const X* x, const compute_t<X>* cosine, const compute_t<X>* sine,
               std::int64_t half, compute_t<X> sign) {
  constexpr bool kSplit = pairs == RopePairs::half_split;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < half; ++i) {
    const std::int64_t first = kSplit ? i : 2 * i, second = kSplit ? i + half : 2 * i + 1;
    const auto a = load(x[first]), b = load(x[second]), c = cosine[i], s = sign * sine[i];
    store(y[first], std::fma(a, c, -(b * s)));
    store(y[second], std::fma(b, c, a * s));
  }
}

/// Token n of all is token `token` of its batch element.
inline std::int64_t position_of(const RopePositions& positions, std::int64_t token,
                                std::int64_t n) {
  return positions.first +
         (positions.each.defined() ? positions.each.data<std::int32_t>()[n] : token);
}

/// Raises Error if a position of `each` is outside the table's `size` positions.
inline void check_each(std::string_view op, const RopePositions& positions, std::int64_t size) {
  if (!positions.each.defined()) return;
  for (std::int64_t n = 0; n < positions.each.numel(); ++n) {
    const std::int64_t position = position_of(positions, 0, n);
    check(position >= 0 && position < size,
          "{}: token {} has position {}; the table has positions [0, {})", op, n, position, size);
  }
}

}  // namespace tessera::cpu
