// dQ on Hopper's tensor cores (wgmma, sm_90a), for bf16 and f16 and heads of 64 or 128.
//
// The form of the kernel is in backward_mma.h: a thread block owns queries and visits keys. It is a
// producer and two consumers, each a warpgroup that owns 64 queries:
//
//   producer     Q dO  K0 V0  K1 V1 | K2 V2 ...                waits for free stages
//   consumer 0   [S dP] P dS [dQ += dS K] [S dP] P dS ...
//   consumer 1        [S dP] P dS [dQ += dS K] [S dP] ...
//
// [...] are the tensor cores. dP is computed during the mask. The two consumers fill each other's
// pauses. V's stage is free after dP, K's after dQ.
#include "kernels/attention/cuda/backward_mma.h"
#include "kernels/attention/cuda/hopper/pipeline.h"
#include "kernels/attention/cuda/launchers.h"
#include "kernels/attention/cuda/query_statistics.h"
#include "kernels/attention/cuda/rotate_back.h"
#include "kernels/cuda/launch.h"

namespace tessera::cuda::attention {
namespace {

constexpr int kQueries = kRowsOfBlock, kKeys = 128, kStages = 2;

struct TensorMaps {
  gpu::TensorMap q, d_o, k, v;
};

template <typename T, int kHeadSize>
struct Memory {
  using Queries = TileRing<PanelTile<T, kQueries, kHeadSize>, 1>;
  using Keys = TileRing<PanelTile<T, kKeys, kHeadSize>, kStages>;
  using Outputs = SharedTile<T, kQueries, kHeadSize>;
  static constexpr std::size_t kBytes =
      2 * Queries::kBytes + 2 * Keys::kBytes + sizeof(T) * Outputs::kElements;

  Queries queries, d_output;
  Keys keys, values;
  Outputs outputs;  // on their way to memory

  explicit __device__ Memory(gpu::TileMemory shared) {
    queries.take_tiles(shared);
    d_output.take_tiles(shared);
    keys.take_tiles(shared);
    values.take_tiles(shared);
    outputs = {shared.take<T>(Outputs::kElements, 128)};
    gpu::begin_rings(shared, queries, d_output, keys, values);
  }
};

/// By one thread: starts the copies of all tiles, in the order in which the consumers take them.
template <typename T, int kHeadSize, bool kCut>
__device__ void produce(const BackwardArguments<T>& x, const TensorMaps& maps,
                        const Schedule& schedule, const Memory<T, kHeadSize>& memory) {
  const Extents& n = x.extents;
  unsigned tile = 0, blocks = 0;
  for_each_block(schedule, [&](unsigned number) {
    const QueryBlock block(n, schedule, kQueries, number);
    memory.queries.tile(blocks).load(maps.q, {0, block.first_query, block.head, block.batch},
                                     memory.queries.begin_fill(blocks));
    memory.d_output.tile(blocks).load(maps.d_o, {0, block.first_query, block.head, block.batch},
                                      memory.d_output.begin_fill(blocks));
    ++blocks;
    for_each_piece_of<kCut, QueryBlock, QueryPiece>(
        number, n, schedule, x.first_key, [&](const QueryBlock& block, const QueryPiece& piece) {
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

/// A consumer: 64 queries of each block, and the gradient of a piece's queries so far.
template <typename T, int kHeadSize, bool kCut>
struct Consumer {
  const BackwardArguments<T>& x;
  const Memory<T, kHeadSize>& memory;
  ConsumerRows rows;
  QueryStatistics statistics[1][2];  // of the lane's rows
  Fragment<1, kHeadSize> dq;
  PackedFragment<kKeys> ds_operand;

  __device__ Consumer(const BackwardArguments<T>& arguments, const Memory<T, kHeadSize>& shared)
      : x(arguments), memory(shared) {}

  __device__ void begin(const QueryBlock& block) {
    const LanePlaces places;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = block.first_query + rows.warp_of_block() + places.row_of(0, 2 * half);
      statistics[0][half] =
          make_statistics<gpu::Vector<T>::kSize>(x, block.batch, block.head, query, kHeadSize);
    }
  }
  /// `tile` is the number of the piece's first.
  __device__ void visit(const QueryBlock& block, const QueryPiece& piece,
                        const PieceKeys<kKeys>& keys, unsigned tile) {
    dq.clear();
    // The last key that the consumer's first row sees, counted from the tile's first.
    int last_seen = block.first_query + rows.first() + x.extents.shift() - piece.first_key;
    for (int step = 0; step < keys.tiles; ++step, last_seen -= kKeys) {
      const bool last = step + 1 == keys.tiles;
      add_tile(tile + step, last_seen, last ? keys.of_last_tile() : kKeys);
    }
  }

  /// A tile, of which `count` keys belong to the piece.
  __device__ void add_tile(unsigned tile, int last_seen, int count) {
    const auto keys = memory.keys.wait(tile), values = memory.values.wait(tile);
    if (kCut && count < kKeys) gpu::clear_rows(count, keys, values);  // 0 times NaN is NaN
    Fragment<1, kKeys> p, ds;
    start_multiply(p, memory.queries.tile(0), rows.first(), keys);
    start_multiply(ds, memory.d_output.tile(0), rows.first(),
                   values);  // dP = dO V^T
    gpu::wait_products<1>(p.values[0]);
    if (last_seen < kKeys - 1) {
      const int of_warp = last_seen + ConsumerRows::of_warp();
      mask(p, [&](int row, int column) { return column <= row + of_warp; });
    }
    gpu::wait_products<0>(ds.values[0]);
    memory.values.release(tile);
    differentiate_softmax(p, ds, x.extents.scale_log2(), statistics);
    pack<T>(ds_operand, ds);
    start_multiply_add(dq, ds_operand, keys);
    gpu::wait_products<0>(dq.values[0]);
    memory.keys.release(tile);
  }

  __device__ void finish(const QueryBlock& block, const QueryPiece& piece) {
    const int first_row = block.first_query + rows.warp_of_block();
    rotate_back(dq, x.rotation, x.extents, block.batch, first_row);
    store(x.dq.rows(block.batch, block.head), first_row, piece, dq,
          RowValues<1>::all(x.extents.scale), memory.outputs, rows.warp_of_block());
  }
};

template <typename T, int kHeadSize, bool kCut>
__device__ void consume(const BackwardArguments<T>& x, const Schedule& schedule,
                        const Memory<T, kHeadSize>& memory) {
  const Extents& n = x.extents;
  Consumer<T, kHeadSize, kCut> consumer(x, memory);
  unsigned tile = 0, blocks = 0;
  for_each_block(schedule, [&](unsigned number) {
    consumer.begin(QueryBlock(n, schedule, kQueries, number));
    memory.queries.wait(blocks);
    memory.d_output.wait(blocks);
    for_each_piece_of<kCut, QueryBlock, QueryPiece>(
        number, n, schedule, x.first_key, [&](const QueryBlock& block, const QueryPiece& piece) {
          const PieceKeys<kKeys> keys(block, piece, n);
          consumer.visit(block, piece, keys, tile);
          tile += keys.tiles;
          if (piece.end >= block.end(n)) {
            memory.queries.release(blocks);
            memory.d_output.release(blocks);
          }
          consumer.finish(block, piece);
        });
    ++blocks;
  });
}

/// kCut: there is a first_key, which may cut a block's queries into pieces.
template <typename T, int kHeadSize, bool kCut>
__global__ void __launch_bounds__(gpu::kRoleThreads, 1)
    query_gradient_hopper_kernel(const BackwardArguments<T> x,
                                 const __grid_constant__ TensorMaps maps, const Schedule schedule) {
  if constexpr (gpu::kHasHopper) {
    const Memory<T, kHeadSize> memory(gpu::TileMemory{});
    gpu::run_roles([&] { produce<T, kHeadSize, kCut>(x, maps, schedule, memory); },
                   [&] { consume<T, kHeadSize, kCut>(x, schedule, memory); });
  }
}

template <typename T, int kHeadSize, bool kCut>
void launch(const BackwardCall& call, const Tensor& workspace) {
  const BackwardArguments<T> arguments(call, workspace);
  const Extents& n = arguments.extents;
  const Schedule schedule =
      persistent_schedule({n.queries, kQueries, call.q.batch * call.q.heads,
                           std::int64_t{2 * sizeof(T)} * n.head_size * n.keys / n.group()});
  const TensorMaps maps{map_of(call.q, kQueries), map_of(call.d_o, kQueries), map_of(call.k, kKeys),
                        map_of(call.v, kKeys)};
  gpu::launch(query_gradient_hopper_kernel<T, kHeadSize, kCut>, persistent_grid(schedule),
              dim3(gpu::kRoleThreads), Memory<T, kHeadSize>::kBytes, gpu::stream(), arguments, maps,
              schedule);
}

}  // namespace

void query_gradient_hopper(const BackwardCall& call, const Tensor& statistics) {
  visit_hopper_heads(call.q, [&](auto size, auto element) {
    constexpr int kHeadSize = decltype(size)::kValue;
    using T = decltype(element);
    call.first_key.defined() ? launch<T, kHeadSize, true>(call, statistics)
                             : launch<T, kHeadSize, false>(call, statistics);
  });
}

}  // namespace tessera::cuda::attention
