#include "kernels/cpu/parallel.h"
#include "kernels/rope/op.h"
#include "kernels/rope/row.h"

namespace tessera::cpu {
namespace {

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
        T* const head = token + h * x.head_size;
        turn_head<pairs>(head, head, table.cosine.data<C>() + angles, table.sine.data<C>() + angles,
                         half, sign);
      }
    }
  });
}

}  // namespace

void rope(const Heads& x, const RopeTable& table, const RopePositions& positions,
          RopeDirection direction) {
  check_each("rope", positions, table.cosine.size(0));
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
