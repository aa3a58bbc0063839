#include <cmath>

#include "kernels/cpu/numeric.h"
#include "kernels/cpu/parallel.h"
#include "kernels/rope/op.h"
#include "runtime/check.h"

namespace tessera::cpu {
namespace {

/// Rotates one head. The fma is explicit, so that a token's bits are the same on every device and
/// at every place in the compiler's vectors.
template <RopePairs pairs, typename T>
void turn_head(T* x, const compute_t<T>* cosine, const compute_t<T>* sine, std::int64_t half,
               compute_t<T> sign) {
  constexpr bool kSplit = pairs == RopePairs::half_split;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < half; ++i) {
    T &first = x[kSplit ? i : 2 * i], &second = x[kSplit ? i + half : 2 * i + 1];
    const auto a = load(first), b = load(second), c = cosine[i], s = sign * sine[i];
    store(first, std::fma(a, c, -(b * s)));
    store(second, std::fma(b, c, a * s));
  }
}

std::int64_t position_of(const RopePositions& positions, std::int64_t token, std::int64_t n) {
  return positions.first +
         (positions.each.defined() ? positions.each.data<std::int32_t>()[n] : token);
}

void check_each(const RopePositions& positions, std::int64_t size) {
  if (!positions.each.defined()) return;
  for (std::int64_t n = 0; n < positions.each.numel(); ++n) {
    const std::int64_t position = position_of(positions, 0, n);
    check(position >= 0 && position < size,
          "rope: token {} has position {}; the table has positions [0, {})", n, position, size);
  }
}

template <RopePairs pairs, typename T>
void turn(const Heads& x, const RopeTable& table, const RopePositions& positions,
          compute_t<T> sign) {
  using C = compute_t<T>;
  const std::int64_t half = x.head_size / 2;
  T* const data = x.tensor.data<T>() + x.offset;
  constexpr std::int64_t kChunk = 16;  // tokens
  parallel_for(x.batch * x.tokens, kChunk, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      const std::int64_t b = n / x.tokens, t = n % x.tokens;
      const std::int64_t angles = position_of(positions, t, n) * half;
      T* const token = data + b * x.batch_stride + t * x.token_stride;
      for (std::int64_t h = 0; h < x.heads; ++h) {
        turn_head<pairs>(token + h * x.head_size, table.cosine.data<C>() + angles,
                         table.sine.data<C>() + angles, half, sign);
      }
    }
  });
}

}  // namespace

void rope(const Heads& x, const RopeTable& table, const RopePositions& positions,
          RopeDirection direction) {
  check_each(positions, table.cosine.size(0));
  visit_floating(x.tensor.dtype(), [&](auto type) {
    using T = decltype(type);
    const compute_t<T> sign = direction == RopeDirection::forward ? 1 : -1;
    if (table.pairs == RopePairs::half_split) {
      turn<RopePairs::half_split, T>(x, table, positions, sign);
    } else {
      turn<RopePairs::interleaved, T>(x, table, positions, sign);
    }
  });
}

}  // namespace tessera::cpu
