// Statistics of every query for the backward passes.
//
// Per query: its logsumexp in base 2, and D = sum(dO * O), which equals the sum over keys of P dP
// (Dao 2023, section 3.1.2). Where dQ has a launch of its own, it computes them for its rows and writes 8
// bytes per query for the kernel of dK and dV, which runs next. Where one launch makes all three, in an
// order without waits, a kernel before it computes them (query_statistics.cu).
#pragma once

#include "kernels/attention/cuda/arguments.h"
#include "kernels/cuda/reduce.h"

namespace tessera::cuda::attention {

/// The statistics of query `query` of a head, by the four neighbouring lanes that share its row. The
/// whole warp calls it. Rows are read kWidth of their `channels` channels at a time: 1, or
/// gpu::Vector<T>::kSize where rows are aligned.
template <int kWidth, typename T>
__device__ QueryStatistics make_statistics(const BackwardArguments<T>& x, int batch, int head,
                                           int query, int channels) {
  const Extents& n = x.extents;
  const int lane = static_cast<int>(gpu::unhoisted(threadIdx.x)) % 4;
  QueryStatistics result{INFINITY, 0.0f};
  if (query < n.queries) {
    const T* const o = x.o.rows(batch, head)[query];
    const T* const d_o = x.d_o.rows(batch, head)[query];
#pragma unroll(kWidth == 1 ? 1 : 4)
    for (int c = lane * kWidth; c < channels; c += 4 * kWidth) {
      float a[kWidth], b[kWidth];
      gpu::load_all(a, o + c);
      gpu::load_all(b, d_o + c);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) result.delta = fmaf(a[i], b[i], result.delta);
    }
    const std::int64_t of_head = static_cast<std::int64_t>(batch) * n.heads + head;
    result.logsumexp = x.logsumexp[of_head * n.queries + query] * kLog2E;
  }
  result.delta += __shfl_xor_sync(gpu::kFullWarp, result.delta, 1);
  result.delta += __shfl_xor_sync(gpu::kFullWarp, result.delta, 2);
  if (lane == 0 && query < padded_queries(n.queries)) {
    x.statistics_of(batch, head)[query] = result;
  }
  return result;
}

}  // namespace tessera::cuda::attention
