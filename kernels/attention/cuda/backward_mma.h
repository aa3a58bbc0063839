// Shared by the two kernels of attention's backward pass on tensor cores. (On Hopper they are two parts of
// one launch.)
//
// Dao 2023, algorithm 2, as two kernels of one form. Each owns *rows* and visits *columns* in tiles:
//
//            rows (stay)     columns (stream by)     S, P, dS        sums in registers
//   dK, dV   keys: K, V      queries: Q, dO, stats   [key][query]    dV += P dO    dK += dS Q
//   dQ       queries: Q, dO  keys: K, V              [query][key]    dQ += dS K
//
// In both, S and dP come out of mma in the layout in which P and dS go in again as left operands.
// One warp sums every element of an output in a fixed order: deterministic without atomics. S and dP
// are computed twice: 7 products instead of 5. A block of the first kernel visits all query heads
// that read its keys, so grouped heads need neither copies of K and V nor sums of dK and dV
// afterwards.
//
// Traffic per head: each kernel reads its rows once and the columns once per 128 rows (mostly from
// L2); 7 * 2 Tq Tkv d FLOP in all, half of it if causal.
#pragma once

#include "kernels/attention/cuda/fragments.h"

namespace tessera::cuda::attention {

/// The work of one block: kRows rows, 16 kM for each team of warps, and kColumns columns at a time.
/// More rows per warp mean fewer reads of shared memory per product, and more columns mean fewer
/// barriers, as far as 255 registers go.
template <int kPieces, int kColumnsAtOnce, int kTeamsOfBlock, int kWarpsPerTeam>
struct BlockSize {
  static constexpr int kM = kPieces, kColumns = kColumnsAtOnce, kTeams = kTeamsOfBlock;
  static constexpr int kRows = 16 * kM * kTeams;
  static constexpr int kThreads = kTeams * kWarpsPerTeam * 32;
};

/// Two tiles of rows, and two double buffers of columns.
template <typename Size, typename T, int kHeadSize>
constexpr std::size_t tile_bytes() {
  return sizeof(T) * kRowStride<kHeadSize> * (2 * Size::kRows + 4 * Size::kColumns);
}

/// P from S. Rows are queries.
template <int kM, int kN>
__device__ void weights_from(Fragment<kM, kN>& scores, float scale_log2,
                             const QueryStatistics (&statistics)[kM][2]) {
  scores.for_each([&](float& p, int m, int, int i) {
    p = gpu::fast_exp2(fmaf(p, scale_log2, -statistics[m][i / 2].logsumexp));
  });
}
/// dS = P * (dP - D) from dP. Rows are queries.
template <int kM, int kN>
__device__ void differentiate(Fragment<kM, kN>& d_scores, const Fragment<kM, kN>& weights,
                              const QueryStatistics (&statistics)[kM][2]) {
  d_scores.for_each([&](float& ds, int m, int n, int i) {
    ds = weights.values[m][n][i] * (ds - statistics[m][i / 2].delta);
  });
}

}  // namespace tessera::cuda::attention
