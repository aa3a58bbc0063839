// Attention's backward pass on tensor cores (mma.sync) for bf16 and f16 and heads of 64 or 128: Dao
// 2023, algorithm 2, as two kernels of one form. Each owns *rows* and visits *columns* in tiles:
//
//            rows (stay)     columns (stream by)     S, P, dS        sums in registers
//   dK, dV   keys: K, V      queries: Q, dO, stats   [key][query]    dV += P dO    dK += dS Q
//   dQ       queries: Q, dO  keys: K, V              [query][key]    dQ += dS K
//
// In both, S and dP come out of mma in the layout in which P and dS go in again as left operands:
// no score passes through shared memory, and no warp waits for another's. Every element of an
// output is summed by one warp in a fixed order: deterministic without atomics. S and dP are
// computed twice: 7 products instead of 5. A block of the first kernel visits all query heads that
// read its keys, so grouped heads need neither copies of K and V nor sums of dK and dV afterwards.
//
// Traffic per head: each kernel reads its rows once and the columns once per 128 rows (mostly from
// L2); 7 * 2 Tq Tkv d FLOP in all, half of it if causal.
#include "kernels/attention/cuda/fragments.h"
#include "kernels/attention/cuda/launchers.h"
#include "kernels/cuda/launch.h"

namespace tessera::cuda::attention {
namespace {

/// What a block of the two kernels takes on: 128 rows, 16 kM a warp. More rows a warp mean fewer
/// reads of shared memory per product, and more columns fewer barriers, as far as 255 registers go.
template <int kPieces, int kColumnsAtOnce>
struct BlockSize {
  static constexpr int kM = kPieces, kColumns = kColumnsAtOnce;
  static constexpr int kRows = 128, kThreads = kRows / (16 * kM) * 32;
};
template <int kHeadSize>
struct KeyValueGradient : BlockSize<2, 32> {};
template <>
struct KeyValueGradient<128> : BlockSize<1, 64> {};
template <int kHeadSize>
struct QueryGradient : BlockSize<2, 64> {};
template <>
struct QueryGradient<128> : BlockSize<2, 32> {};

template <typename Size, typename T, int kHeadSize>
constexpr std::size_t shared_bytes() {
  return sizeof(T) * kHeadSize * (2 * Size::kRows + 4 * Size::kColumns);
}

/// scores = P, and d_scores = dS = P * (dP - D), from S and dP.
template <int kM, int kN, typename F>
__device__ void differentiate_softmax(Fragment<kM, kN>& scores, Fragment<kM, kN>& d_scores,
                                      float scale_log2, F statistics_at) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const QueryStatistics query = statistics_at(m, n, i);
        float &p = scores.values[m][n][i], &ds = d_scores.values[m][n][i];
        p = gpu::fast_exp2(fmaf(p, scale_log2, -query.logsumexp));
        ds = p * (ds - query.delta);
      }
    }
  }
}

template <typename T, int kHeadSize>
__global__ void __launch_bounds__(KeyValueGradient<kHeadSize>::kThreads)
    key_value_gradient_mma_kernel(BackwardArguments<T> x, Schedule schedule) {
  using Size = KeyValueGradient<kHeadSize>;
  constexpr int kM = Size::kM, kKeys = Size::kRows, kQueries = Size::kColumns;
  constexpr int kThreads = Size::kThreads;
  using KeyTile = SharedTile<T, kKeys, kHeadSize>;
  using QueryTiles = DoubleBuffer<SharedTile<T, kQueries, kHeadSize>, T>;
  gpu::SharedMemory shared;
  const auto keys = take<KeyTile, T>(shared), values = take<KeyTile, T>(shared);
  const auto queries = take<QueryTiles, T>(shared), d_output = take<QueryTiles, T>(shared);
  QueryStatistics* const statistics = shared.take<QueryStatistics>(2 * kQueries);
  const Extents& n = x.extents;
  const auto [rank, all_head] = schedule.place_of(blockIdx.x);
  const int batch = all_head / n.kv_heads, kv_head = all_head % n.kv_heads;
  const int first_key = rank * kKeys;                // the first keys are seen by the most queries
  const int first_row = first_key + warp_row<kM>();  // the warp's

  // Steps: of every query head in the group, the tiles from the first that sees a key of the block.
  const int first_tile = max(first_key - n.shift(), 0) / kQueries;
  const int tiles = (n.queries + kQueries - 1) / kQueries - first_tile;
  const int steps = n.group() * tiles;
  const auto load_queries = [&](int step) {
    const int head = kv_head * n.group() + step / tiles;
    const int first_query = (first_tile + step % tiles) * kQueries;
    load_async<kThreads>(queries[step], x.q.rows(batch, head), first_query, n.queries);
    load_async<kThreads>(d_output[step], x.d_o.rows(batch, head), first_query, n.queries);
    if (threadIdx.x < kQueries / 2) {
      const int query = 2 * static_cast<int>(threadIdx.x);
      gpu::copy_async(statistics + step % 2 * kQueries + query,
                      x.statistics_of(batch, head) + first_query + query, 16);
    }
    gpu::copy_async_commit();
  };

  load_async<kThreads>(keys, x.k.rows(batch, kv_head), first_key, n.keys);
  load_async<kThreads>(values, x.v.rows(batch, kv_head), first_key, n.keys);
  gpu::copy_async_commit();
  if (steps > 0) load_queries(0);
  Fragment<kM, kHeadSize> dk, dv;
  dk.clear();
  dv.clear();
  for (int step = 0; step < steps; ++step) {
    gpu::copy_async_wait<0>();
    __syncthreads();  // everybody's copies have landed, and nobody reads the last tiles any more
    if (step + 1 < steps) load_queries(step + 1);
    const int first_query = (first_tile + step % tiles) * kQueries;
    const int first_seen_by = first_row - n.shift() - first_query;  // the warp's first key
    if (first_row >= n.keys || first_seen_by >= kQueries) continue;
    Fragment<kM, kQueries> scores, d_scores;
    multiply(scores, keys, warp_row<kM>(), queries[step]);
    if (first_seen_by + 16 * kM - 1 > 0) {
      mask(scores, [&](int row, int column) { return row + first_seen_by <= column; });
    }
    multiply(d_scores, values, warp_row<kM>(), d_output[step]);
    const QueryStatistics* const of_tile = statistics + step % 2 * kQueries;
    differentiate_softmax(scores, d_scores, n.scale_log2(),
                          [&](int, int piece, int i) { return of_tile[column_of(piece, i)]; });
    multiply_add(dv, scores, d_output[step]);
    multiply_add(dk, d_scores, queries[step]);
  }
  gpu::copy_async_wait<0>();  // no queries, no steps
  float one[kM][2], scale[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) {
    one[m][0] = one[m][1] = 1.0f;
    scale[m][0] = scale[m][1] = n.scale;
  }
  store(x.dk.rows(batch, kv_head), first_row, n.keys, dk, scale, keys, warp_row<kM>());
  store(x.dv.rows(batch, kv_head), first_row, n.keys, dv, one, values, warp_row<kM>());
}

template <typename T, int kHeadSize>
__global__ void __launch_bounds__(QueryGradient<kHeadSize>::kThreads)
    query_gradient_mma_kernel(BackwardArguments<T> x, Schedule schedule) {
  using Size = QueryGradient<kHeadSize>;
  constexpr int kM = Size::kM, kQueries = Size::kRows, kKeys = Size::kColumns;
  constexpr int kThreads = Size::kThreads;
  using QueryTile = SharedTile<T, kQueries, kHeadSize>;
  using KeyTiles = DoubleBuffer<SharedTile<T, kKeys, kHeadSize>, T>;
  gpu::SharedMemory shared;
  const auto queries = take<QueryTile, T>(shared), d_output = take<QueryTile, T>(shared);
  const auto keys = take<KeyTiles, T>(shared), values = take<KeyTiles, T>(shared);
  const Extents& n = x.extents;
  const auto [rank, all_head] = schedule.place_of(blockIdx.x);
  const int batch = all_head / n.heads, head = all_head % n.heads, kv_head = head / n.group();
  const int first_query = (static_cast<int>(schedule.tiles) - 1 - rank) * kQueries;
  const int first_row = first_query + warp_row<kM>();  // the warp's
  const auto load_keys = [&](int step) {
    load_async<kThreads>(keys[step], x.k.rows(batch, kv_head), step * kKeys, n.keys);
    load_async<kThreads>(values[step], x.v.rows(batch, kv_head), step * kKeys, n.keys);
    gpu::copy_async_commit();
  };

  load_async<kThreads>(queries, x.q.rows(batch, head), first_query, n.queries);
  load_async<kThreads>(d_output, x.d_o.rows(batch, head), first_query, n.queries);
  load_keys(0);
  QueryStatistics statistics[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = first_row + row_of(m, 2 * half);
      statistics[m][half] =
          query < n.queries ? x.statistics_of(batch, head)[query] : QueryStatistics{INFINITY, 0.0f};
    }
  }
  Fragment<kM, kHeadSize> dq;
  dq.clear();
  const int visible = min(first_query + kQueries + n.shift(), n.keys);
  const int steps = (visible + kKeys - 1) / kKeys;
  for (int step = 0; step < steps; ++step) {
    gpu::copy_async_wait<0>();
    __syncthreads();  // everybody's copies have landed, and nobody reads the last tiles any more
    if (step + 1 < steps) load_keys(step + 1);
    const int last_seen = first_row + n.shift() - step * kKeys;  // by the warp's first row
    if (first_row >= n.queries || last_seen + 16 * kM - 1 < 0) continue;
    Fragment<kM, kKeys> scores, d_scores;
    multiply(scores, queries, warp_row<kM>(), keys[step]);
    if (last_seen < kKeys - 1) {
      mask(scores, [&](int row, int column) { return column <= row + last_seen; });
    }
    multiply(d_scores, d_output, warp_row<kM>(), values[step]);
    differentiate_softmax(scores, d_scores, n.scale_log2(),
                          [&](int m, int, int i) { return statistics[m][i / 2]; });
    multiply_add(dq, d_scores, keys[step]);
  }
  float scale[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) scale[m][0] = scale[m][1] = n.scale;
  store(x.dq.rows(batch, head), first_row, n.queries, dq, scale, queries, warp_row<kM>());
}

template <typename T, int kHeadSize>
void launch(const BackwardCall& call, const Tensor& workspace) {
  const BackwardArguments<T> arguments(call, workspace);
  const Extents& n = arguments.extents;
  const std::int64_t row_bytes = std::int64_t{2 * sizeof(T)} * n.head_size;
  using ByKeys = KeyValueGradient<kHeadSize>;
  const Schedule by_keys(n.keys, ByKeys::kRows, call.k.batch * call.k.heads,
                         row_bytes * n.queries * n.group());
  gpu::launch(key_value_gradient_mma_kernel<T, kHeadSize>, by_keys.blocks(), dim3(ByKeys::kThreads),
              shared_bytes<ByKeys, T, kHeadSize>() + 2 * ByKeys::kColumns * sizeof(QueryStatistics),
              gpu::stream(), arguments, by_keys);
  if (n.queries == 0) return;
  using ByQueries = QueryGradient<kHeadSize>;
  const Schedule by_queries(n.queries, ByQueries::kRows, call.q.batch * call.q.heads,
                            row_bytes * n.keys / n.group());
  gpu::launch(query_gradient_mma_kernel<T, kHeadSize>, by_queries.blocks(),
              dim3(ByQueries::kThreads), shared_bytes<ByQueries, T, kHeadSize>(), gpu::stream(),
              arguments, by_queries);
}

}  // namespace

void backward_mma(const BackwardCall& call, const Tensor& statistics) {
  const bool small = call.q.head_size == 64;
  if (call.q.tensor.dtype() == DType::bf16) {
    small ? launch<bfloat16, 64>(call, statistics) : launch<bfloat16, 128>(call, statistics);
  } else {
    small ? launch<float16, 64>(call, statistics) : launch<float16, 128>(call, statistics);
  }
}

}  // namespace tessera::cuda::attention
