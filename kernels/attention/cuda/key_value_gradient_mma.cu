// dK and dV on tensor cores (mma.sync), for bf16 and f16 and tiles of 64, 80, 96, 128 or 256 channels.
//
// The form of the kernel is in backward_mma.h: a block owns keys and visits queries.
//
// dK and dV of 32 keys are more than a warp's registers hold. With 16 keys a warp would wait for
// shared memory: each element read would serve half as many products. So a pair of warps shares 32
// keys. Each warp has two of the four products, and P passes from one to the other (Exchange):
//
//   warp of dV    S = K Q^T    P, sent       |    dV += P dO        P in f32; | is a barrier
//   warp of dK    dP = V dO^T                |    dS = P (dP - D)    dK += dS Q
#include "kernels/attention/cuda/backward_mma.h"
#include "kernels/attention/cuda/launchers.h"
#include "kernels/attention/cuda/rotate_back.h"
#include "kernels/attention/cuda/row_sums.h"
#include "kernels/cuda/device_attributes.h"
#include "kernels/cuda/launch.h"

namespace tessera::cuda::attention {
namespace {

/// Two pairs of warps, so that a multiprocessor has room for two blocks: one computes while the other
/// waits at a barrier. With 64 queries at a time and heads of 128, a block needs 113 KiB of shared
/// memory; with 32, which is slower, 72.5 KiB. Heads of 256 have half as many keys and queries, and the same
/// bytes but for P. Every output is the same sum of products in the same order, so both sizes give the same
/// bits.
template <int kHeadSize, int kQueries>
using KeyValueGradient = BlockSize<kPiecesOfWarp<kHeadSize>, kQueries, 2, 2>;
template <int kHeadSize>
constexpr int kManyQueries = kHeadSize > 128 ? 32 : 64;
template <int kHeadSize>
constexpr int kFewQueries = kManyQueries<kHeadSize> / 2;

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
    const LanePlaces places;
#pragma unroll
    for (int n = 0; n < kN / 8; ++n) {
      const float logsumexp[2] = {of_tile[places.column_of(n, 0)].logsumexp,
                                  of_tile[places.column_of(n, 1)].logsumexp};
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
    const LanePlaces places;
#pragma unroll
    for (int n = 0; n < kN / 8; ++n) {
      const float delta[2] = {of_tile[places.column_of(n, 0)].delta,
                              of_tile[places.column_of(n, 1)].delta};
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
template <typename T, int kHeadSize, typename Size, bool kCut>
struct KeyValueMemory {
  using KeyTile = SharedTile<T, Size::kRows, kHeadSize>;
  using QueryTile = SharedTile<T, Size::kColumns, kHeadSize>;
  using QueryTiles = DoubleBuffer<QueryTile, T>;
  using PairExchange = Exchange<Size::kM, Size::kColumns>;
  /// They are copied in pairs, and a piece may begin in the middle of a pair.
  static constexpr int kStatistics = Size::kColumns + (kCut ? 2 : 0);
  static constexpr std::size_t kBytes = tile_bytes<Size, T, kHeadSize>() +
                                        2 * kStatistics * sizeof(QueryStatistics) +
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
        statistics(shared.take<QueryStatistics>(2 * kStatistics)),
        exchange{shared.take<float4>(Size::kTeams * PairExchange::kElements) +
                 team * PairExchange::kElements} {}
  __device__ QueryStatistics* statistics_of(int step) const {
    return statistics + step % 2 * kStatistics;
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
                                const PairPosition& at, const QueryStatistics* statistics,
                                float scale_log2) {
  multiply(p, memory.keys, at.row, memory.queries[step]);
  if (at.first_seen_by + 16 * kM - 1 > 0) {
    mask(p, [&](int key, int query) { return key + at.first_seen_by <= query; });
  }
  memory.exchange.send(p, scale_log2, statistics);
}

/// dK's warp: dS from dP and the other warp's P, and dK += dS Q.
template <int kM, int kQueries, int kHeadSize, typename Memory>
__device__ void add_to_key_gradient(Fragment<kM, kHeadSize>& dk, Fragment<kM, kQueries>& ds,
                                    const Memory& memory, int step,
                                    const QueryStatistics* statistics) {
  memory.exchange.receive(ds, statistics);
  multiply_add(dk, ds, memory.queries[step]);
}

/// kCut: there is a first_key, which may cut the block's keys into pieces.
template <typename T, int kHeadSize, int kQueries, bool kCut>
__global__ void __launch_bounds__(KeyValueGradient<kHeadSize, kQueries>::kThreads)
    key_value_gradient_mma_kernel(BackwardArguments<T> x, Schedule schedule) {
  using Size = KeyValueGradient<kHeadSize, kQueries>;
  constexpr int kM = Size::kM, kThreads = Size::kThreads;
  const int warp = static_cast<int>(threadIdx.x / 32), team = warp % Size::kTeams;
  const bool makes_dv = warp < Size::kTeams;  // otherwise dK
  const KeyValueMemory<T, kHeadSize, Size, kCut> memory(gpu::SharedMemory{}, team);
  const Extents& n = x.extents;
  const auto visit = [&](const KeyBlock& block, const KeyPiece& piece) {
    const int row = team * 16 * kM, first_row = block.first_key + row;  // the pair's
    // Steps: for each query head in the group, its tiles from the first that sees a key of the
    // piece. Tiles are counted from the first query that sees the piece's document.
    const TokenRange range = piece.queries;
    const int before = max(block.first_key, piece.first) - n.shift() - range.first;
    const int first_tile = max(before, 0) / kQueries;
    const int tiles = (range.end - range.first + kQueries - 1) / kQueries - first_tile;
    const int steps = n.group() * tiles;
    // With cuts, the statistics of queries beyond the range become zero. So do the queries' rows:
    // P = 1, but P dO = 0 and dS = P (0 - 0) = 0.
    const int odd = kCut ? range.first % 2 : 0;
    const auto load_queries = [&](int step) {
      const int batch = unhoisted(block.batch), head = block.kv_head * n.group() + step / tiles;
      const int first_query = range.first + (first_tile + step % tiles) * kQueries;
      load_async<kThreads>(memory.queries[step], x.q.rows(batch, head), first_query, range.end);
      load_async<kThreads>(memory.d_output[step], x.d_o.rows(batch, head), first_query, range.end);
      if (static_cast<int>(threadIdx.x) < kQueries / 2 + odd) {
        const int query = 2 * static_cast<int>(threadIdx.x), at = first_query - odd + query;
        const int bytes = kCut ? 8 * min(max(range.end - at, 0), 2) : 16;
        gpu::copy_async(memory.statistics_of(step) + query, x.statistics_of(batch, head) + at,
                        static_cast<unsigned>(bytes));
      }
      gpu::copy_async_commit();
    };

    load_async<kThreads>(memory.keys, x.k.rows(block.batch, block.kv_head), block.first_key,
                         n.keys);
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
      const int first_query = range.first + (first_tile + step % tiles) * kQueries;
      const PairPosition at{row, first_row - n.shift() - first_query};
      const bool is_seen =
          first_row < piece.end && first_row + 16 * kM > piece.first && at.first_seen_by < kQueries;
      const QueryStatistics* const statistics = memory.statistics_of(step) + odd;
      Fragment<kM, kQueries> scores;
      if (is_seen) {
        if (makes_dv) {
          weights_of_step(scores, memory, step, at, statistics, n.scale_log2());
        } else {
          multiply(scores, memory.values, row, memory.d_output[step]);  // dP = V dO^T
        }
      }
      __syncthreads();  // P is in shared memory
      if (!is_seen) continue;
      if (makes_dv) {
        multiply_add(gradient, scores, memory.d_output[step]);  // dV += P dO
      } else {
        add_to_key_gradient(gradient, scores, memory, step, statistics);
      }
    }
    gpu::copy_async_wait<0>();
    __syncthreads();  // without queries there was no step, and keys and values are still in flight
    const SharedTile<T, Size::kRows, kHeadSize> scratch{makes_dv ? memory.keys.data
                                                                 : memory.values.data};
    if (!makes_dv) rotate_back(gradient, x.rotation, n, block.batch, first_row);
    store((makes_dv ? x.dv : x.dk).rows(block.batch, block.kv_head), first_row, piece, gradient,
          RowValues<kM>::all(makes_dv ? 1.0f : n.scale), scratch, row);
    if (!kSumsRows<kHeadSize, kCut> || x.lines == nullptr) return;
    const int head = n.heads + (makes_dv ? n.kv_heads : 0) + block.kv_head;
    sum_rows<kM>(x.line_of(block.batch, first_row, head), scratch, row, n.head_size,
                 [] { __syncthreads(); });
  };
  for_each_piece<KeyBlock, KeyPiece, kCut>(schedule, Size::kRows, n, x.runs, visit);
}

template <typename T, int kHeadSize, int kQueries, bool kCut>
void launch(const BackwardCall& call, const BackwardArguments<T>& arguments) {
  using Size = KeyValueGradient<kHeadSize, kQueries>;
  constexpr std::size_t kBytes = KeyValueMemory<T, kHeadSize, Size, kCut>::kBytes;
  check_shared_memory("attention_backward", kHeadSize, kBytes);
  const Extents& n = arguments.extents;
  const Schedule schedule(n.keys, Size::kRows, call.k.batch * call.k.heads,
                          std::int64_t{2 * sizeof(T)} * n.head_size * n.queries * n.group());
  gpu::launch(key_value_gradient_mma_kernel<T, kHeadSize, kQueries, kCut>, schedule.blocks(),
              dim3(Size::kThreads), kBytes, gpu::stream(), arguments, schedule);
}

template <typename T, int kHeadSize, bool kCut>
void launch(const BackwardCall& call, const Tensor& workspace) {
  const BackwardArguments<T> arguments(call, workspace);
  // As many queries as leave room for two blocks. A block's limit is the multiprocessor's memory less
  // the 1 KiB that every block takes for itself.
  using LargeMemory =
      KeyValueMemory<T, kHeadSize, KeyValueGradient<kHeadSize, kManyQueries<kHeadSize>>, kCut>;
  if (2 * LargeMemory::kBytes + 1024 <= gpu::shared_memory_limit()) {
    launch<T, kHeadSize, kManyQueries<kHeadSize>, kCut>(call, arguments);
  } else {
    launch<T, kHeadSize, kFewQueries<kHeadSize>, kCut>(call, arguments);
  }
}

}  // namespace

void key_value_gradient_mma(const BackwardCall& call, const Tensor& statistics) {
  visit_tensor_core_heads(call.q, [&](auto size, auto element) {
    constexpr int kHeadSize = decltype(size)::kValue;
    using T = decltype(element);
    call.runs.queries.defined() ? launch<T, kHeadSize, true>(call, statistics)
                                : launch<T, kHeadSize, false>(call, statistics);
  });
}

}  // namespace tessera::cuda::attention
