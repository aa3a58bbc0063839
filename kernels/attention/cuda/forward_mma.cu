// Attention's forward pass on tensor cores (mma.sync, sm_80 and later).
//
// For bf16 and f16 and tiles of 64, 80, 96, 128 or 256 channels: FlashAttention-2 (Dao 2023, algorithm 1). A
// block of 4 warps owns 128 queries of one head, 32 per warp, and visits the keys in tiles of 64 (48 with
// larger heads). With 256 channels it owns 64, and a tile has 32 keys. The next tile is loaded while one is computed with (cp.async). Scores, weights and
// outputs stay in registers. Only the tiles on the diagonal are masked.
//
//                    keys: 64   64   64   64   64            a warp's part of a tile
//   queries   0-127       | D  | D  |                        S = Q K^T      32 x 64, registers
//           128-255       | #  | #  | D  | D  |              P = exp2(...)  in place, row sums by 4
//           256-383       | #  | #  | #  | #  | D ...                       lanes
//                                                            O += P V       32 x d, registers
//
// Traffic per head: Q and O once, K and V once per 128 queries (mostly from L2); 4 Tq Tkv d FLOP,
// half of it if causal. A warp reads each key and value from shared memory once per 32 queries.
#include "kernels/attention/cuda/fragments.h"
#include "kernels/attention/cuda/launchers.h"
#include "kernels/cuda/launch.h"

namespace tessera::cuda::attention {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * 32;
template <int kHeadSize>
constexpr int kQueriesOfBlock = int{kWarps} * 16 * kPiecesOfWarp<kHeadSize>;
/// Keys of a tile: as many as the registers have room for next to a warp's outputs. Two blocks then
/// fit the shared memory of a multiprocessor of sm_90, and of sm_80 but for 256 channels.
template <int kHeadSize>
constexpr int kKeysAtOnce = kHeadSize == 64   ? 64
                            : kHeadSize > 128 ? 32
                                              : 48;

template <typename T, int kHeadSize>
constexpr std::size_t shared_bytes() {
  return sizeof(T) * kRowStride<kHeadSize> *
         (kQueriesOfBlock<kHeadSize> + 4 * kKeysAtOnce<kHeadSize>);
}

/// kCut: there is a first_key, which may cut the block's rows into pieces.
template <typename T, int kHeadSize, bool kCut>
__global__ void __launch_bounds__(kThreads)
    forward_mma_kernel(ForwardArguments<T> x, Schedule schedule) {
  constexpr int kM = kPiecesOfWarp<kHeadSize>, kQueries = kQueriesOfBlock<kHeadSize>;
  constexpr int kKeys = kKeysAtOnce<kHeadSize>;
  using QueryTile = SharedTile<T, kQueries, kHeadSize>;
  using KeyTiles = DoubleBuffer<SharedTile<T, kKeys, kHeadSize>, T>;
  gpu::SharedMemory shared;
  const auto queries = take<QueryTile, T>(shared);
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
    load_keys(0);
    OnlineSoftmax<kM> softmax;
    Fragment<kM, kHeadSize> outputs;
    outputs.clear();
    const int steps = (block.visible_keys(n, piece.end) - piece.first_key + kKeys - 1) / kKeys;
    for (int step = 0; step < steps; ++step) {
      gpu::copy_async_wait<0>();
      __syncthreads();  // all copies have arrived, and no warp reads the last tiles any more
      if (step + 1 < steps) load_keys(step + 1);
      // By the warp's first row.
      const int last_seen = first_row + n.shift() - piece.first_key - step * kKeys;
      if (!has_rows() || last_seen + 16 * kM - 1 < 0) continue;
      Fragment<kM, kKeys> scores;
      multiply(scores, queries, warp_row<kM>(), keys[step]);
      if (last_seen < kKeys - 1) {
        mask(scores, [&](int row, int column) { return column <= row + last_seen; });
      }
      scale_rows(outputs, softmax.weights(scores, n.scale_log2()));
      multiply_add(outputs, scores, values[step]);
    }
    if (!has_rows()) return;

    RowValues<kM> factors;
    const LanePlaces places;
    factors.for_each([&](float& factor, int m, int half) {
      const float sum = softmax.template over_row<gpu::Sum>(softmax.sum.values[m][half]);
      const int query = first_row + places.row_of(m, 2 * half);
      factor = 1.0f / sum;
      if (threadIdx.x % 4 == 0 && query >= piece.first && query < piece.end) {
        x.logsumexp[static_cast<std::int64_t>(block.all_head) * n.queries + query] =
            softmax.maximum.values[m][half] * n.scale + logf(sum);
      }
    });
    store(x.o.rows(batch, head), first_row, piece, outputs, factors, queries, warp_row<kM>());
  };
  for_each_piece<QueryBlock, QueryPiece, kCut>(schedule, kQueries, n, x.runs, visit);
}

template <typename T, int kHeadSize, bool kCut>
void launch(const ForwardCall& call) {
  const ForwardArguments<T> arguments(call);
  const Extents& n = arguments.extents;
  const Schedule schedule(n.queries, kQueriesOfBlock<kHeadSize>, call.q.batch * call.q.heads,
                          std::int64_t{2 * sizeof(T)} * n.keys * n.head_size / n.group());
  gpu::launch(forward_mma_kernel<T, kHeadSize, kCut>, schedule.blocks(), dim3(kThreads),
              shared_bytes<T, kHeadSize>(), gpu::stream(), arguments, schedule);
}

}  // namespace

void forward_mma(const ForwardCall& call) {
  visit_tensor_core_heads(call.q, [&](auto size, auto element) {
    constexpr int kHeadSize = decltype(size)::kValue;
    using T = decltype(element);
    call.runs.queries.defined() ? launch<T, kHeadSize, true>(call)
                                : launch<T, kHeadSize, false>(call);
  });
}

}  // namespace tessera::cuda::attention
