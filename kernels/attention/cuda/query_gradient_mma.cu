// dQ on tensor cores (mma.sync), for bf16 and f16 and tiles of 64, 80, 96, 128 or 256 channels.
//
// The form of the kernel is in backward_mma.h: a block owns queries and visits keys.
#include "kernels/attention/cuda/backward_mma.h"
#include "kernels/attention/cuda/launchers.h"
#include "kernels/attention/cuda/query_statistics.h"
#include "kernels/attention/cuda/rotate_back.h"
#include "kernels/attention/cuda/row_sums.h"
#include "kernels/cuda/launch.h"

namespace tessera::cuda::attention {
namespace {

template <int kHeadSize>
constexpr int kKeysAtOnce = kHeadSize == 64 ? 64 : (kHeadSize > 128 ? 16 : 32);
template <int kHeadSize>
using QueryGradient = BlockSize<kPiecesOfWarp<kHeadSize>, kKeysAtOnce<kHeadSize>, 4, 1>;

/// kCut: there is a first_key, which may cut the block's queries into pieces.
template <typename T, int kHeadSize, bool kCut>
__global__ void __launch_bounds__(QueryGradient<kHeadSize>::kThreads)
    query_gradient_mma_kernel(BackwardArguments<T> x, Schedule schedule) {
  using Size = QueryGradient<kHeadSize>;
  constexpr int kM = Size::kM, kQueries = Size::kRows, kKeys = Size::kColumns;
  constexpr int kThreads = Size::kThreads, kWidth = gpu::Vector<T>::kSize;
  using QueryTile = SharedTile<T, kQueries, kHeadSize>;
  using KeyTiles = DoubleBuffer<SharedTile<T, kKeys, kHeadSize>, T>;
  gpu::SharedMemory shared;
  const auto queries = take<QueryTile, T>(shared), d_output = take<QueryTile, T>(shared);
  const auto keys = take<KeyTiles, T>(shared), values = take<KeyTiles, T>(shared);
  const Extents& n = x.extents;
  const auto visit = [&](const QueryBlock& block, const QueryPiece& piece) {
    const int batch = block.batch, head = block.head, kv_head = block.kv_head;
    const int first_row = block.first_query + warp_row<kM>();  // the warp's
    const auto has_rows = [&] {
      return first_row < piece.end && first_row + 16 * kM > piece.first;
    };
    const auto load_keys = [&](int step) {
      const int first = piece.first_key + step * kKeys, count = piece.end + n.shift();
      load_async<kThreads>(keys[step], x.k.rows(unhoisted(batch), kv_head), first, count);
      load_async<kThreads>(values[step], x.v.rows(unhoisted(batch), kv_head), first, count);
      gpu::copy_async_commit();
    };

    load_async<kThreads>(queries, x.q.rows(batch, head), block.first_query, n.queries);
    load_async<kThreads>(d_output, x.d_o.rows(batch, head), block.first_query, n.queries);
    load_keys(0);
    const LanePlaces places;
    QueryStatistics statistics[kM][2];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int query = first_row + places.row_of(m, 2 * half);
        statistics[m][half] = make_statistics<kWidth>(x, batch, head, query, n.head_size);
      }
    }
    Fragment<kM, kHeadSize> dq;
    dq.clear();
    const int steps = (block.visible_keys(n, piece.end) - piece.first_key + kKeys - 1) / kKeys;
    for (int step = 0; step < steps; ++step) {
      gpu::copy_async_wait<0>();
      __syncthreads();  // all copies have arrived, and no warp reads the last tiles any more
      if (step + 1 < steps) load_keys(step + 1);
      // By the warp's first row.
      const int last_seen = first_row + n.shift() - piece.first_key - step * kKeys;
      if (!has_rows() || last_seen + 16 * kM - 1 < 0) continue;
      Fragment<kM, kKeys> scores, d_scores;
      multiply(scores, queries, warp_row<kM>(), keys[step]);
      if (last_seen < kKeys - 1) {
        mask(scores, [&](int row, int column) { return column <= row + last_seen; });
      }
      multiply(d_scores, d_output, warp_row<kM>(), values[step]);
      weights_from(scores, n.scale_log2(), statistics);
      differentiate(d_scores, scores, statistics);
      multiply_add(dq, d_scores, keys[step]);
    }
    const QueryBlock same(n, schedule, kQueries);  // instead of numbers kept in registers
    rotate_back(dq, x.rotation, n, same.batch, same.first_query + warp_row<kM>());
    store(x.dq.rows(same.batch, same.head), same.first_query + warp_row<kM>(), piece, dq,
          RowValues<kM>::all(n.scale), queries, warp_row<kM>());
    if (!kSumsRows<kHeadSize, kCut> || x.lines == nullptr) return;
    const int row = same.first_query + warp_row<kM>();
    sum_rows<kM>(x.line_of(same.batch, row, same.head), queries, warp_row<kM>(), n.head_size,
                 [] { __syncthreads(); });
  };
  for_each_piece<QueryBlock, QueryPiece, kCut>(schedule, kQueries, n, x.runs, visit);
}

template <typename T, int kHeadSize, bool kCut>
void launch(const BackwardCall& call, const Tensor& workspace) {
  using Size = QueryGradient<kHeadSize>;
  const BackwardArguments<T> arguments(call, workspace);
  const Extents& n = arguments.extents;
  const Schedule schedule(n.queries, Size::kRows, call.q.batch * call.q.heads,
                          std::int64_t{2 * sizeof(T)} * n.head_size * n.keys / n.group());
  gpu::launch(query_gradient_mma_kernel<T, kHeadSize, kCut>, schedule.blocks(),
              dim3(Size::kThreads), tile_bytes<Size, T, kHeadSize>(), gpu::stream(), arguments,
              schedule);
}

}  // namespace

void query_gradient_mma(const BackwardCall& call, const Tensor& statistics) {
  visit_tensor_core_heads(call.q, [&](auto size, auto element) {
    constexpr int kHeadSize = decltype(size)::kValue;
    using T = decltype(element);
    call.runs.queries.defined() ? launch<T, kHeadSize, true>(call, statistics)
                                : launch<T, kHeadSize, false>(call, statistics);
  });
}

}  // namespace tessera::cuda::attention
