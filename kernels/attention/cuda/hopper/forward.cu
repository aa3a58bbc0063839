// Attention's forward pass on Hopper's tensor cores (wgmma, sm_90a).
//
// For bf16 and f16 and heads of 64 or 128: FlashAttention-3 (Shah et al. 2024, arXiv 2407.08608,
// algorithms 1 and 2). A thread block is a producer and two consumers, each a warpgroup. One thread of
// the producer starts the copies. Each consumer owns 64 queries of one head:
//
//   producer     Q  K0 V0 K1 V1 | K2  V2  | K3 ...      waits for free stages
//                      (ring of 2 stages)
//   consumer 0   [S0]softmax0 [S1 O+=P0V0] softmax1 [S2 O+=P1V1] softmax2  ...
//   consumer 1        [S0]softmax0        [S1 O+=P0V0] softmax1  [S2 O+=P1V1] ...
//
// [...] are the tensor cores. They are busy with the next tile's scores and the last tile's outputs
// while the other consumer computes a softmax (taking turns, section 3.1), and a consumer's own
// outputs are summed during its softmax (section 3.2).
//
// The mask, first keys, statistics and layout are those of forward_mma.cu. The order in which tensor
// cores sum differs, and so do the results' last bits.
//
// Traffic per head: Q and O once, K and V once per 128 queries, mostly from L2.
// docs/kernels/attention_hopper.md explains the kernel and draws its events.
#include "kernels/attention/cuda/hopper/pipeline.h"
#include "kernels/attention/cuda/launchers.h"
#include "kernels/cuda/early_launch.h"

namespace tessera::cuda::attention {
namespace {

constexpr int kQueries = kRowsOfBlock, kKeys = 128, kStages = 2;

struct TensorMaps {
  gpu::TensorMap q, k, v;
};

template <typename T, int kHeadSize>
struct Memory {
  using Queries = TileRing<PanelTile<T, kQueries, kHeadSize>, 1>;
  using Keys = TileRing<PanelTile<T, kKeys, kHeadSize>, kStages>;
  using Outputs = SharedTile<T, kQueries, kHeadSize>;
  static constexpr std::size_t kBytes =
      Queries::kBytes + 2 * Keys::kBytes + sizeof(T) * Outputs::kElements + gpu::NumberRing::kBytes;

  Queries queries;
  Keys keys, values;
  Outputs outputs;          // on their way to memory
  gpu::NumberRing numbers;  // of the thread block's blocks of rows

  explicit __device__ Memory(gpu::TileMemory shared) {
    queries.take_tiles(shared);
    keys.take_tiles(shared);
    values.take_tiles(shared);
    outputs = {shared.take<T>(Outputs::kElements, 128)};
    gpu::begin_rings(shared, queries, keys, values, numbers);
  }
};

/// By one thread: starts the copies of all tiles, in the order in which the consumers take them.
template <typename T, int kHeadSize, bool kCut>
__device__ void produce(const ForwardArguments<T>& x, const TensorMaps& maps,
                        const Schedule& schedule, const gpu::WorkQueue& queue,
                        const Memory<T, kHeadSize>& memory) {
  const Extents& n = x.extents;
  unsigned tile = 0;
  queue.produce(memory.numbers, [&](unsigned number, unsigned place) {
    const QueryBlock block(n, schedule, kQueries, number);
    memory.queries.tile(place).load(maps.q, {0, block.first_query, block.head, block.batch},
                                    memory.queries.begin_fill(place));
    for_each_piece_of<kCut, QueryBlock, QueryPiece>(
        number, n, schedule, x.runs, [&](const QueryBlock& block, const QueryPiece& piece) {
          const int tiles = PieceKeys<kKeys>(block, piece, n).tiles;
          for (int step = 0; step < tiles; ++step, ++tile) {
            const int first = piece.first_key + step * kKeys;
            memory.keys.tile(tile).load(maps.k, {0, first, block.kv_head, block.batch},
                                        memory.keys.begin_fill(tile));
            memory.values.tile(tile).load(maps.v, {0, first, block.kv_head, block.batch},
                                          memory.values.begin_fill(tile));
          }
        });
  });
}

/// A consumer: 64 queries of each block, and a piece's outputs so far.
template <typename T, int kHeadSize, bool kCut>
struct Consumer {
  const ForwardArguments<T>& x;
  const Memory<T, kHeadSize>& memory;
  ConsumerRows rows;
  Turns turns{rows.group};
  OnlineSoftmax<1> softmax;
  Fragment<1, kHeadSize> outputs;
  PackedFragment<kKeys> weights;

  __device__ Consumer(const ForwardArguments<T>& arguments, const Memory<T, kHeadSize>& shared)
      : x(arguments), memory(shared) {}

  /// `tile` is the number of the piece's first.
  __device__ void visit(const QueryBlock& block, const QueryPiece& piece,
                        const PieceKeys<kKeys>& keys, unsigned tile) {
    softmax = {};
    outputs.clear();
    // The last key that the consumer's first row sees, counted from the tile's first. All four warps
    // go the same way: wgmma takes them together.
    int last_seen = block.first_query + rows.first() + x.extents.shift() - piece.first_key;
    first_tile(tile, last_seen);
    int step = 1;
    last_seen -= kKeys;
    for (; step < keys.tiles && last_seen >= kKeys - 1; ++step, last_seen -= kKeys) {
      next_tile<false>(tile + step, last_seen);
    }
    for (; step < keys.tiles; ++step, last_seen -= kKeys) next_tile<true>(tile + step, last_seen);
  }

  __device__ void first_tile(unsigned tile, int last_seen) {
    Fragment<1, kKeys> scores;
    start_multiply(scores, memory.queries.tile(0), rows.first(), memory.keys.wait(tile));
    gpu::wait_products<0>(scores.values[0]);
    memory.keys.release(tile);
    if (last_seen < kKeys - 1) hide(scores, last_seen);
    softmax.weights(scores, x.extents.scale_log2());
    pack<T>(weights, scores);
  }
  /// A tile's scores, and the outputs of the tile before it.
  template <bool kMasked>
  __device__ void next_tile(unsigned tile, int last_seen) {
    Fragment<1, kKeys> scores;
    const auto keys = memory.keys.wait(tile);
    turns.wait();
    start_multiply(scores, memory.queries.tile(0), rows.first(), keys);
    start_multiply_add(outputs, weights, memory.values.wait(tile - 1));
    turns.pass();
    gpu::wait_products<1>(scores.values[0]);
    memory.keys.release(tile);
    if constexpr (kMasked) hide(scores, last_seen);
    const RowValues<1> corrections = softmax.weights(scores, x.extents.scale_log2());
    gpu::wait_products<0>(outputs.values[0]);
    memory.values.release(tile - 1);
    scale_rows(outputs, corrections);
    pack<T>(weights, scores);
  }
  /// The outputs of the last tile, which has `count` of the piece's keys. Values of other keys may be
  /// NaN, and 0 times NaN is NaN: they become zeros.
  __device__ void last_outputs(unsigned tile, int count) {
    const auto values = memory.values.wait(tile);
    if (kCut && count < kKeys) gpu::clear_rows(count, values);
    start_multiply_add(outputs, weights, values);
    gpu::wait_products<0>(outputs.values[0]);
    memory.values.release(tile);
  }
  __device__ static void hide(Fragment<1, kKeys>& scores, int last_seen) {
    const int of_warp = last_seen + ConsumerRows::of_warp();
    mask(scores, [&](int row, int column) { return column <= row + of_warp; });
  }

  __device__ void finish(const QueryBlock& block, const QueryPiece& piece) {
    const Extents& n = x.extents;
    const LanePlaces places;
    const int first_row = block.first_query + rows.warp_of_block();
    RowValues<1> factors;
    factors.for_each([&](float& factor, int m, int half) {
      const float sum = softmax.template over_row<gpu::Sum>(softmax.sum.values[m][half]);
      const int query = first_row + places.row_of(m, 2 * half);
      factor = 1.0f / sum;
      if (threadIdx.x % 4 == 0 && query >= piece.first && query < piece.end) {
        x.logsumexp[static_cast<std::int64_t>(block.all_head) * n.queries + query] =
            softmax.maximum.values[m][half] * n.scale + logf(sum);
      }
    });
    store(x.o.rows(block.batch, block.head), first_row, piece, outputs, factors, memory.outputs,
          rows.warp_of_block());
  }
};

template <typename T, int kHeadSize, bool kCut>
__device__ void consume(const ForwardArguments<T>& x, const Schedule& schedule,
                        const gpu::WorkQueue& queue, const Memory<T, kHeadSize>& memory) {
  const Extents& n = x.extents;
  Consumer<T, kHeadSize, kCut> consumer(x, memory);
  unsigned tile = 0;
  consumer.turns.begin();
  queue.consume(memory.numbers, [&](unsigned number, unsigned place) {
    memory.queries.wait(place);
    for_each_piece_of<kCut, QueryBlock, QueryPiece>(
        number, n, schedule, x.runs, [&](const QueryBlock& block, const QueryPiece& piece) {
          const PieceKeys<kKeys> keys(block, piece, n);
          consumer.visit(block, piece, keys, tile);
          tile += keys.tiles;
          if (piece.end >= block.end(n)) memory.queries.release(place);
          consumer.last_outputs(tile - 1, keys.of_last_tile());
          consumer.finish(block, piece);
        });
  });
  consumer.turns.end();
}

/// kCut: there is a first_key, which may cut a block's rows into pieces.
template <typename T, int kHeadSize, bool kCut>
__global__ void __launch_bounds__(gpu::kRoleThreads, 1)
    forward_hopper_kernel(const ForwardArguments<T> x, const __grid_constant__ TensorMaps maps,
                          const Schedule schedule, const gpu::WorkQueue queue) {
  if constexpr (gpu::kHasHopper) {
    const Memory<T, kHeadSize> memory(gpu::TileMemory{});
    gpu::run_roles([&] { produce<T, kHeadSize, kCut>(x, maps, schedule, queue, memory); },
                   [&] { consume<T, kHeadSize, kCut>(x, schedule, queue, memory); });
  }
}

template <typename T, int kHeadSize, bool kCut>
void launch(const ForwardCall& call) {
  const ForwardArguments<T> arguments(call);
  const Extents& n = arguments.extents;
  const Schedule all(n.queries, kQueries, call.q.batch * call.q.heads,
                     std::int64_t{2 * sizeof(T)} * n.keys * n.head_size / n.group());
  const Schedule schedule = persistent_schedule(all);
  const TensorMaps maps{map_of(call.q, kQueries), map_of(call.k, kKeys), map_of(call.v, kKeys)};
  gpu::launch_early(forward_hopper_kernel<T, kHeadSize, kCut>, persistent_grid(schedule.count()),
                    dim3(gpu::kRoleThreads), Memory<T, kHeadSize>::kBytes, gpu::stream(), arguments,
                    maps, schedule, work_queue(schedule.count()));
}

}  // namespace

void forward_hopper(const ForwardCall& call) {
  visit_hopper_heads(call.q, [&](auto size, auto element) {
    constexpr int kHeadSize = decltype(size)::kValue;
    using T = decltype(element);
    call.runs.queries.defined() ? launch<T, kHeadSize, true>(call)
                                : launch<T, kHeadSize, false>(call);
  });
}

}  // namespace tessera::cuda::attention
