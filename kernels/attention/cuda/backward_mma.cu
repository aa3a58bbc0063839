// Attention's backward pass on tensor cores (mma.sync), for bf16 and f16 and heads of 64 or 128.
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
// dK and dV of 32 keys are more than a warp's registers hold. With 16 keys a warp would wait for
// shared memory: each element read would serve half as many products. So a pair of warps shares 32
// keys. Each warp has two of the four products, and P passes from one to the other (Exchange):
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

/// The work of one block: 128 rows, 16 kM for each warp or pair of warps, and kColumns columns at a
/// time. More rows per warp mean fewer reads of shared memory per product, and more columns mean
/// fewer barriers, as far as 255 registers go.
template <int kPieces, int kColumnsAtOnce, int kWarpsPerRows>
struct BlockSize {
  static constexpr int kM = kPieces, kColumns = kColumnsAtOnce;
  static constexpr int kRows = 128, kTeams = kRows / (16 * kM);
  static constexpr int kThreads = kTeams * kWarpsPerRows * 32;
};

/// With 64 queries at a time and heads of 128, a block needs 161 KiB of shared memory. Where a block
/// has 99 KiB (sm_86, sm_89) it takes 16, in 88.25 KiB. Every output is the same sum of products in
/// the same order, so both sizes give the same bits.
template <int kQueries>
using KeyValueGradient = BlockSize<2, kQueries, 2>;
constexpr int kManyQueries = 64, kFewQueries = 16;

template <int kHeadSize>
struct QueryGradient : BlockSize<2, 64, 1> {};
template <>
struct QueryGradient<128> : BlockSize<2, 32, 1> {};

/// Two tiles of rows, and two double buffers of columns.
template <typename Size, typename T, int kHeadSize>
constexpr std::size_t tile_bytes() {
  return sizeof(T) * kHeadSize * (2 * Size::kRows + 4 * Size::kColumns);
}

/// P on its way from a pair's first warp to the second. A lane reads the values of the same lane.
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
  /// d_scores = dS = P * (dP - D), from dP and the P that was sent.
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

/// A block's shared memory in the kernel of dK and dV.
template <typename T, int kHeadSize, typename Size>
struct KeyValueMemory {
  using KeyTile = SharedTile<T, Size::kRows, kHeadSize>;
  using QueryTile = SharedTile<T, Size::kColumns, kHeadSize>;
  using QueryTiles = DoubleBuffer<QueryTile, T>;
  using PairExchange = Exchange<Size::kM, Size::kColumns>;
  static constexpr std::size_t kBytes = tile_bytes<Size, T, kHeadSize>() +
                                        2 * Size::kColumns * sizeof(QueryStatistics) +
                                        Size::kTeams * PairExchange::kElements * sizeof(float4);

  KeyTile keys, values;
  QueryTiles queries, d_output;
  QueryStatistics* statistics;  // a double buffer, too
  PairExchange exchange;

  explicit __device__ KeyValueMemory(gpu::SharedMemory shared, int team)
      : keys(take<KeyTile, T>(shared)),
        values(take<KeyTile, T>(shared)),
        queries(take<QueryTiles, T>(shared)),
        d_output(take<QueryTiles, T>(shared)),
        statistics(shared.take<QueryStatistics>(2 * Size::kColumns)),
        exchange{shared.take<float4>(Size::kTeams * PairExchange::kElements) +
                 team * PairExchange::kElements} {}
  __device__ QueryStatistics* statistics_of(int step) const {
    return statistics + step % 2 * Size::kColumns;
  }
};

/// A pair of warps at one step. Its keys begin at row `row` of the block's tile. The first of them is
/// seen by the queries from column `first_seen_by` of the step's tile on.
struct PairPosition {
  int row, first_seen_by;
};

// ---- The two roles of a pair's warps, before and after the barrier of a step

/// dV's warp: P from S = K Q^T, also to the other warp.
template <int kM, int kQueries, typename Memory>
__device__ void weights_of_step(Fragment<kM, kQueries>& p, const Memory& memory, int step,
                                const PairPosition& at, float scale_log2) {
  multiply(p, memory.keys, at.row, memory.queries[step]);
  if (at.first_seen_by + 16 * kM - 1 > 0) {
    mask(p, [&](int key, int query) { return key + at.first_seen_by <= query; });
  }
  memory.exchange.send(p, scale_log2, memory.statistics_of(step));
}

/// dK's warp: dS from dP and the other warp's P, and dK += dS Q.
template <int kM, int kQueries, int kHeadSize, typename Memory>
__device__ void add_to_key_gradient(Fragment<kM, kHeadSize>& dk, Fragment<kM, kQueries>& ds,
                                    const Memory& memory, int step) {
  memory.exchange.receive(ds, memory.statistics_of(step));
  multiply_add(dk, ds, memory.queries[step]);
}

template <typename T, int kHeadSize, int kQueries>
__global__ void __launch_bounds__(KeyValueGradient<kQueries>::kThreads)
    key_value_gradient_mma_kernel(BackwardArguments<T> x, Schedule schedule) {
  using Size = KeyValueGradient<kQueries>;
  constexpr int kM = Size::kM, kThreads = Size::kThreads;
  const int warp = static_cast<int>(threadIdx.x / 32), team = warp % Size::kTeams;
  const bool makes_dv = warp < Size::kTeams;  // otherwise dK
  const KeyValueMemory<T, kHeadSize, Size> memory(gpu::SharedMemory{}, team);
  const Extents& n = x.extents;
  const KeyBlock block(n, schedule, Size::kRows);
  const int row = team * 16 * kM, first_row = block.first_key + row;  // the pair's

  // Steps: for each query head in the group, its tiles from the first that sees a key of the block.
  const int first_tile = block.first_seeing_query / kQueries;
  const int tiles = (n.queries + kQueries - 1) / kQueries - first_tile;
  const int steps = n.group() * tiles;
  const auto load_queries = [&](int step) {
    const int batch = unhoisted(block.batch), head = block.kv_head * n.group() + step / tiles;
    const int first_query = (first_tile + step % tiles) * kQueries;
    load_async<kThreads>(memory.queries[step], x.q.rows(batch, head), first_query, n.queries);
    load_async<kThreads>(memory.d_output[step], x.d_o.rows(batch, head), first_query, n.queries);
    if (threadIdx.x < kQueries / 2) {
      const int query = 2 * static_cast<int>(threadIdx.x);
      gpu::copy_async(memory.statistics_of(step) + query,
                      x.statistics_of(batch, head) + first_query + query, 16);
    }
    gpu::copy_async_commit();
  };

  load_async<kThreads>(memory.keys, x.k.rows(block.batch, block.kv_head), block.first_key, n.keys);
  load_async<kThreads>(memory.values, x.v.rows(block.batch, block.kv_head), block.first_key,
                       n.keys);
  gpu::copy_async_commit();
  if (steps > 0) load_queries(0);
  Fragment<kM, kHeadSize> gradient;
  gradient.clear();
  for (int step = 0; step < steps; ++step) {
    gpu::copy_async_wait<0>();
    __syncthreads();  // all copies have arrived, and no warp reads the last tiles any more
    if (step + 1 < steps) load_queries(step + 1);
    const int first_query = (first_tile + step % tiles) * kQueries;
    const PairPosition at{row, first_row - n.shift() - first_query};
    const bool is_seen = first_row < n.keys && at.first_seen_by < kQueries;
    Fragment<kM, kQueries> scores;
    if (is_seen) {
      if (makes_dv) {
        weights_of_step(scores, memory, step, at, n.scale_log2());
      } else {
        multiply(scores, memory.values, row, memory.d_output[step]);  // dP = V dO^T
      }
    }
    __syncthreads();  // P is in shared memory
    if (!is_seen) continue;
    if (makes_dv) {
      multiply_add(gradient, scores, memory.d_output[step]);  // dV += P dO
    } else {
      add_to_key_gradient(gradient, scores, memory, step);
    }
  }
  gpu::copy_async_wait<0>();
  __syncthreads();  // without queries there was no step, and keys and values are still in flight
  const SharedTile<T, Size::kRows, kHeadSize> scratch{makes_dv ? memory.keys.data
                                                               : memory.values.data};
  store((makes_dv ? x.dv : x.dk).rows(block.batch, block.kv_head), first_row, n.keys, gradient,
        RowValues<kM>::all(makes_dv ? 1.0f : n.scale), scratch, row);
}

/// scores = P, and d_scores = dS = P * (dP - D), from S and dP.
template <int kM, int kN>
__device__ void differentiate_softmax(Fragment<kM, kN>& scores, Fragment<kM, kN>& d_scores,
                                      float scale_log2,
                                      const QueryStatistics (&statistics)[kM][2]) {
  scores.for_each([&](float& p, int m, int n, int i) {
    const QueryStatistics query = statistics[m][i / 2];
    float& ds = d_scores.values[m][n][i];
    p = gpu::fast_exp2(fmaf(p, scale_log2, -query.logsumexp));
    ds = p * (ds - query.delta);
  });
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
  const QueryBlock block(n, schedule, kQueries);
  const int batch = block.batch, head = block.head, kv_head = block.kv_head;
  const int first_row = block.first_query + warp_row<kM>();  // the warp's
  const auto load_keys = [&](int step) {
    load_async<kThreads>(keys[step], x.k.rows(unhoisted(batch), kv_head), step * kKeys, n.keys);
    load_async<kThreads>(values[step], x.v.rows(unhoisted(batch), kv_head), step * kKeys, n.keys);
    gpu::copy_async_commit();
  };

  load_async<kThreads>(queries, x.q.rows(batch, head), block.first_query, n.queries);
  load_async<kThreads>(d_output, x.d_o.rows(batch, head), block.first_query, n.queries);
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
  const int steps = (block.visible_keys(n) + kKeys - 1) / kKeys;
  for (int step = 0; step < steps; ++step) {
    gpu::copy_async_wait<0>();
    __syncthreads();  // all copies have arrived, and no warp reads the last tiles any more
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
  store(x.dq.rows(batch, head), first_row, n.queries, dq, RowValues<kM>::all(n.scale), queries,
        warp_row<kM>());
}

template <typename T, int kHeadSize, int kQueries>
void launch_key_value_gradient(const BackwardCall& call, const BackwardArguments<T>& arguments) {
  using Size = KeyValueGradient<kQueries>;
  constexpr std::size_t kBytes = KeyValueMemory<T, kHeadSize, Size>::kBytes;
  check_shared_memory("attention_backward", kHeadSize, kBytes);
  const Extents& n = arguments.extents;
  const Schedule schedule(n.keys, Size::kRows, call.k.batch * call.k.heads,
                          std::int64_t{2 * sizeof(T)} * n.head_size * n.queries * n.group());
  gpu::launch(key_value_gradient_mma_kernel<T, kHeadSize, kQueries>, schedule.blocks(),
              dim3(Size::kThreads), kBytes, gpu::stream(), arguments, schedule);
}

template <typename T, int kHeadSize>
void launch_query_gradient(const BackwardCall& call, const BackwardArguments<T>& arguments) {
  using Size = QueryGradient<kHeadSize>;
  const Extents& n = arguments.extents;
  const Schedule schedule(n.queries, Size::kRows, call.q.batch * call.q.heads,
                          std::int64_t{2 * sizeof(T)} * n.head_size * n.keys / n.group());
  gpu::launch(query_gradient_mma_kernel<T, kHeadSize>, schedule.blocks(), dim3(Size::kThreads),
              tile_bytes<Size, T, kHeadSize>(), gpu::stream(), arguments, schedule);
}

template <typename T, int kHeadSize>
void launch(const BackwardCall& call, const Tensor& workspace) {
  const BackwardArguments<T> arguments(call, workspace);
  using LargeMemory = KeyValueMemory<T, kHeadSize, KeyValueGradient<kManyQueries>>;
  if (kHeadSize == 64 || LargeMemory::kBytes <= shared_memory_limit()) {
    launch_key_value_gradient<T, kHeadSize, kManyQueries>(call, arguments);
  } else if constexpr (kHeadSize == 128) {
    launch_key_value_gradient<T, kHeadSize, kFewQueries>(call, arguments);
  }
  if (call.q.tokens > 0) launch_query_gradient<T, kHeadSize>(call, arguments);
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
