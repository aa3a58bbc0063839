// Attention's backward pass on tensor cores (mma.sync) for bf16 and f16 and heads of 64 or 128: Dao
// 2023, algorithm 2, as two kernels of one form. Each owns *rows* and visits *columns* in tiles:
//
//            rows (stay)     columns (stream by)     S, P, dS        sums in registers
//   dK, dV   keys: K, V      queries: Q, dO, stats   [key][query]    dV += P dO    dK += dS Q
//   dQ       queries: Q, dO  keys: K, V              [query][key]    dQ += dS K
//
// In both, S and dP come out of mma in the layout in which P and dS go in again as left operands.
// Every element of an output is summed by one warp in a fixed order: deterministic without atomics.
// S and dP are computed twice: 7 products instead of 5. A block of the first kernel visits all
// query heads that read its keys, so grouped heads need neither copies of K and V nor sums of dK
// and dV afterwards.
//
// dK and dV of 32 keys are more than a warp's registers hold, and with 16 keys a warp would wait
// for shared memory: each element read would serve half as many products. So 32 keys have a pair of
// warps, with two products each, and P passes from one to the other (Exchange):
//
//   warp of dV    S = K Q^T    P, sent       |    dV += P dO        P in f32; | is a barrier
//   warp of dK    dP = V dO^T                |    dS = P (dP - D)    dK += dS Q
//
// Traffic per head: each kernel reads its rows once and the columns once per 128 rows (mostly from
// L2); 7 * 2 Tq Tkv d FLOP in all, half of it if causal.
#include "kernels/attention/cuda/fragments.h"
#include "kernels/attention/cuda/launchers.h"
#include "kernels/cuda/launch.h"

namespace tessera::cuda::attention {
namespace {

/// What a block of the two kernels takes on: 128 rows, 16 kM a warp, or a pair of warps. More rows
/// a warp mean fewer reads of shared memory per product, and more columns fewer barriers, as far as
/// 255 registers go.
template <int kPieces, int kColumnsAtOnce, int kWarpsPerRows>
struct BlockSize {
  static constexpr int kM = kPieces, kColumns = kColumnsAtOnce;
  static constexpr int kRows = 128, kTeams = kRows / (16 * kM);
  static constexpr int kThreads = kTeams * kWarpsPerRows * 32;
};
using KeyValueGradient = BlockSize<2, 64, 2>;
template <int kHeadSize>
struct QueryGradient : BlockSize<2, 64, 1> {};
template <>
struct QueryGradient<128> : BlockSize<2, 32, 1> {};

template <typename Size, typename T, int kHeadSize>
constexpr std::size_t shared_bytes() {
  return sizeof(T) * kHeadSize * (2 * Size::kRows + 4 * Size::kColumns);
}

/// P on its way from a pair's first warp to the second: each lane's values are for the same lane.
template <int kM, int kN>
struct Exchange {
  static constexpr int kElements = 32 * kM * (kN / 8);
  float4* data;  // the pair's

  __device__ float4& at(int m, int n) const {
    return data[(m * (kN / 8) + n) * 32 + static_cast<int>(threadIdx.x % 32)];
  }
  /// scores = P from S, and writes P.
  __device__ void send(Fragment<kM, kN>& scores, float scale_log2,
                       const QueryStatistics* of_tile) const {
#pragma unroll
    for (int n = 0; n < kN / 8; ++n) {
      const float logsumexp[2] = {of_tile[column_of(n, 0)].logsumexp,
                                  of_tile[column_of(n, 1)].logsumexp};
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        float(&p)[4] = scores.values[m][n];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          p[i] = gpu::fast_exp2(fmaf(p[i], scale_log2, -logsumexp[i % 2]));
        }
        at(m, n) = {p[0], p[1], p[2], p[3]};
      }
    }
  }
  /// d_scores = dS = P * (dP - D) from dP, and P as it was sent.
  __device__ void receive(Fragment<kM, kN>& d_scores, const QueryStatistics* of_tile) const {
#pragma unroll
    for (int n = 0; n < kN / 8; ++n) {
      const float delta[2] = {of_tile[column_of(n, 0)].delta, of_tile[column_of(n, 1)].delta};
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        float(&ds)[4] = d_scores.values[m][n];
        const float4 p = at(m, n);
        ds[0] = p.x * (ds[0] - delta[0]);
        ds[1] = p.y * (ds[1] - delta[1]);
        ds[2] = p.z * (ds[2] - delta[0]);
        ds[3] = p.w * (ds[3] - delta[1]);
      }
    }
  }
};

template <typename Size>
using ExchangeOf = Exchange<Size::kM, Size::kColumns>;

template <typename T, int kHeadSize>
__global__ void __launch_bounds__(KeyValueGradient::kThreads)
    key_value_gradient_mma_kernel(BackwardArguments<T> x, Schedule schedule) {
  using Size = KeyValueGradient;
  constexpr int kM = Size::kM, kKeys = Size::kRows, kQueries = Size::kColumns;
  constexpr int kThreads = Size::kThreads;
  using KeyTile = SharedTile<T, kKeys, kHeadSize>;
  using QueryTiles = DoubleBuffer<SharedTile<T, kQueries, kHeadSize>, T>;
  using PairExchange = ExchangeOf<Size>;
  gpu::SharedMemory shared;
  const auto keys = take<KeyTile, T>(shared), values = take<KeyTile, T>(shared);
  const auto queries = take<QueryTiles, T>(shared), d_output = take<QueryTiles, T>(shared);
  QueryStatistics* const statistics = shared.take<QueryStatistics>(2 * kQueries);
  const int team = static_cast<int>(threadIdx.x / 32 % Size::kTeams);
  const bool makes_dv = threadIdx.x / 32 < Size::kTeams;  // otherwise dK
  const PairExchange exchange{shared.take<float4>(Size::kTeams * PairExchange::kElements) +
                              team * PairExchange::kElements};
  const Extents& n = x.extents;
  const auto [rank, all_head] = schedule.place_of(blockIdx.x);
  const int batch = all_head / n.kv_heads, kv_head = all_head % n.kv_heads;
  const int first_key = rank * kKeys;  // the first keys are seen by the most queries
  const int row = team * 16 * kM, first_row = first_key + row;  // the pair's

  // Steps: of every query head in the group, the tiles from the first that sees a key of the block.
  const int first_tile = max(first_key - n.shift(), 0) / kQueries;
  const int tiles = (n.queries + kQueries - 1) / kQueries - first_tile;
  const int steps = n.group() * tiles;
  const auto load_queries = [&](int step) {
    const int head = kv_head * n.group() + step / tiles;
    const int first_query = (first_tile + step % tiles) * kQueries;
    load_async<kThreads>(queries[step], x.q.rows(anew(batch), head), first_query, n.queries);
    load_async<kThreads>(d_output[step], x.d_o.rows(anew(batch), head), first_query, n.queries);
    if (threadIdx.x < kQueries / 2) {
      const int query = 2 * static_cast<int>(threadIdx.x);
      gpu::copy_async(statistics + step % 2 * kQueries + query,
                      x.statistics_of(anew(batch), head) + first_query + query, 16);
    }
    gpu::copy_async_commit();
  };

  load_async<kThreads>(keys, x.k.rows(batch, kv_head), first_key, n.keys);
  load_async<kThreads>(values, x.v.rows(batch, kv_head), first_key, n.keys);
  gpu::copy_async_commit();
  if (steps > 0) load_queries(0);
  const KeyTile rows{makes_dv ? keys.data : values.data};
  Fragment<kM, kHeadSize> gradient;
  gradient.clear();
  for (int step = 0; step < steps; ++step) {
    gpu::copy_async_wait<0>();
    __syncthreads();  // everybody's copies have landed, and nobody reads the last tiles any more
    if (step + 1 < steps) load_queries(step + 1);
    const int first_query = (first_tile + step % tiles) * kQueries;
    const int first_seen_by = first_row - n.shift() - first_query;  // the pair's first key
    const bool is_seen = first_row < n.keys && first_seen_by < kQueries;
    const QueryStatistics* const of_tile = statistics + step % 2 * kQueries;
    Fragment<kM, kQueries> scores;
    if (is_seen) {
      multiply(scores, rows, row, makes_dv ? queries[step] : d_output[step]);
      if (makes_dv) {
        if (first_seen_by + 16 * kM - 1 > 0) {
          mask(scores, [&](int key, int query) { return key + first_seen_by <= query; });
        }
        exchange.send(scores, n.scale_log2(), of_tile);
      }
    }
    __syncthreads();  // P is there
    if (!is_seen) continue;
    if (!makes_dv) exchange.receive(scores, of_tile);
    multiply_add(gradient, scores, makes_dv ? d_output[step] : queries[step]);
  }
  gpu::copy_async_wait<0>();
  __syncthreads();  // without queries there was no step, and these are the keys' and values'
  float factor[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) factor[m][0] = factor[m][1] = makes_dv ? 1.0f : n.scale;
  store((makes_dv ? x.dv : x.dk).rows(batch, kv_head), first_row, n.keys, gradient, factor, rows,
        row);
}

/// scores = P, and d_scores = dS = P * (dP - D), from S and dP.
template <int kM, int kN>
__device__ void differentiate_softmax(Fragment<kM, kN>& scores, Fragment<kM, kN>& d_scores,
                                      float scale_log2,
                                      const QueryStatistics (&statistics)[kM][2]) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const QueryStatistics query = statistics[m][i / 2];
        float &p = scores.values[m][n][i], &ds = d_scores.values[m][n][i];
        p = gpu::fast_exp2(fmaf(p, scale_log2, -query.logsumexp));
        ds = p * (ds - query.delta);
      }
    }
  }
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
    load_async<kThreads>(keys[step], x.k.rows(anew(batch), kv_head), step * kKeys, n.keys);
    load_async<kThreads>(values[step], x.v.rows(anew(batch), kv_head), step * kKeys, n.keys);
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
    differentiate_softmax(scores, d_scores, n.scale_log2(), statistics);
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
  using ByKeys = KeyValueGradient;
  const Schedule by_keys(n.keys, ByKeys::kRows, call.k.batch * call.k.heads,
                         row_bytes * n.queries * n.group());
  gpu::launch(key_value_gradient_mma_kernel<T, kHeadSize>, by_keys.blocks(), dim3(ByKeys::kThreads),
              shared_bytes<ByKeys, T, kHeadSize>() +
                  2 * ByKeys::kColumns * sizeof(QueryStatistics) +
                  ByKeys::kTeams * ExchangeOf<ByKeys>::kElements * sizeof(float4),
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
