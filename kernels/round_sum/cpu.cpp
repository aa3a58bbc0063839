#include <algorithm>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/parallel.h"
#include "kernels/round_sum/op.h"

namespace tessera::cpu {
namespace {

/// A row. `bias` and `residual` may be null.
template <typename T, typename Sum>
void round_row(T* y, const Sum* sums, const T* bias, const T* residual, std::int64_t columns) {
#pragma GCC ivdep
  for (std::int64_t c = 0; c < columns; ++c) {
    Sum value = sums[c];
    if (bias != nullptr) value += load(bias[c]);
    if (residual != nullptr) value += load(residual[c]);
    store(y[c], value);
  }
}

}  // namespace

void round_sum(Out y, const Tensor& sums, const Tensor& bias, const Tensor& residual) {
  const std::int64_t C = y.size(-1), rows = C == 0 ? 0 : y.numel() / C;
  const std::int64_t chunk =
      std::max<std::int64_t>(1, kElementwiseChunk / std::max<std::int64_t>(1, C));
  visit_floating(y.dtype(), [&](auto type) {
    using T = decltype(type);
    using Sum = compute_t<T>;
    T* const to = y.data<T>();
    const Sum* const from = sums.data<Sum>();
    const T* const b = bias.defined() ? bias.data<T>() : nullptr;
    const T* const r = residual.defined() ? residual.data<T>() : nullptr;
    parallel_for(rows, chunk, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) {
        round_row(to + n * C, from + n * C, b, r == nullptr ? r : r + n * C, C);
      }
    });
  });
}

}  // namespace tessera::cpu
