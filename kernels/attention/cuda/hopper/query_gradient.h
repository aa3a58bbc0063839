// dQ on Hopper's tensor cores (wgmma, sm_90a): one of the two parts of backward.cu.
//
// Its form is in backward_mma.h: a thread block owns queries and visits keys. It is a producer and two
// consumers, each a warpgroup that owns 64 queries:
//
//   producer     Q dO  K0 V0  K1 V1 | K2 V2 ...                waits for free stages
//   consumer 0   [S dP] dS [dQ S dP] dS [dQ S dP] dS ...
//   consumer 1        [S dP] dS [dQ S dP] dS ...
//
// [...] are the tensor cores, with dQ += dS K. P is computed during dP. S of the next tile is queued
// behind dQ. dP starts when S is complete: dQ, dS, S and dP in flight would take 224 registers. In the
// pauses that remain the tensor cores work for the other consumer. The sum has the order of the tiles.
#pragma once

#include "kernels/attention/cuda/backward_mma.h"
#include "kernels/attention/cuda/hopper/backward_memory.h"
#include "kernels/attention/cuda/rotate_back.h"
#include "kernels/attention/cuda/row_sums.h"

namespace tessera::cuda::attention::query_gradient {

inline constexpr int kQueries = kRowsOfBlock, kKeys = kRowsOfBlock;

template <typename T, int kHeadSize>
struct Memory {
  using Shared = BackwardMemory<T, kHeadSize>;
  typename Shared::Rows queries, d_output;
  typename Shared::Columns keys, values;
  typename Shared::Outputs outputs;

  explicit __device__ Memory(const Shared& shared)
      : queries(shared.rows[0]),
        d_output(shared.rows[1]),
        keys(shared.columns[0]),
        values(shared.columns[1]),
        outputs(shared.outputs) {}
};

/// By one thread: starts the copies of a block's tiles, in the order in which the consumers take them.
/// `rows` is the place of the block's own rows in their rings, and `tile` that of the next tile.
template <typename T, int kHeadSize, bool kCut>
__device__ void produce(const BackwardArguments<T>& x, const BackwardMaps& maps,
                        const Schedule& schedule, unsigned number,
                        const Memory<T, kHeadSize>& memory, unsigned rows, unsigned& tile) {
  const Extents& n = x.extents;
  const QueryBlock block(n, schedule, kQueries, number);
  const gpu::TilePlace place{0, block.first_query, block.head, block.batch};
  memory.queries.tile(rows).load(maps.q, place, memory.queries.begin_fill(rows));
  memory.d_output.tile(rows).load(maps.d_o, place, memory.d_output.begin_fill(rows));
  for_each_piece_of<kCut, QueryBlock, QueryPiece>(
      number, n, schedule, x.runs, [&](const QueryBlock& block, const QueryPiece& piece) {
        const int tiles = PieceKeys<kKeys>(block, piece, n).tiles;
        for (int step = 0; step < tiles; ++step, ++tile) {
          const gpu::TilePlace place{0, piece.first_key + step * kKeys, block.kv_head, block.batch};
          memory.keys.tile(tile).load(maps.k, place, memory.keys.begin_fill(tile));
          memory.values.tile(tile).load(maps.v, place, memory.values.begin_fill(tile));
        }
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
      const bool exists = query < padded_queries(x.extents.queries);
      statistics[0][half] = exists ? x.statistics_of(block.batch, block.head)[query]
                                   : QueryStatistics{INFINITY, 0.0f};
    }
  }
  /// `tile` is the number of the piece's first.
  __device__ void visit(const QueryBlock& block, const QueryPiece& piece,
                        const PieceKeys<kKeys>& keys, unsigned tile) {
    dq.clear();
    // The last key that the consumer's first row sees, counted from the tile's first.
    int last_seen = block.first_query + rows.first() + x.extents.shift() - piece.first_key;
    Fragment<1, kKeys> p;
    make_scores(p, tile, keys.count);
    for (int count = keys.count; count > 0; count -= kKeys, last_seen -= kKeys, ++tile) {
      add_tile(p, tile, last_seen);
      if (count > kKeys) make_scores(p, tile + 1, count - kKeys);  // while dQ is summed
      gpu::wait_products<0>(dq.values[0]);
    }
  }

  /// S of a tile, at which `count` keys of the piece begin.
  __device__ void make_scores(Fragment<1, kKeys>& p, unsigned tile, int count) {
    const auto keys = memory.keys.wait(tile);
    if (kCut && count < kKeys) {  // 0 times NaN is NaN
      gpu::clear_rows(count, keys, memory.values.wait(tile));
    }
    start_multiply(p, memory.queries.tile(0), rows.first(), keys);
    gpu::wait_products<0>(p.values[0]);
  }

  /// Starts to add a tile's product to dQ. `p` is S.
  __device__ void add_tile(Fragment<1, kKeys>& p, unsigned tile, int last_seen) {
    release_before(tile, memory.keys, memory.values);
    Fragment<1, kKeys> ds;
    start_multiply(ds, memory.d_output.tile(0), rows.first(),
                   memory.values.wait(tile));  // dP = dO V^T
    if (last_seen < kKeys - 1) {
      const int of_warp = last_seen + ConsumerRows::of_warp();
      mask(p, [&](int row, int column) { return column <= row + of_warp; });
    }
    weights_from(p, x.extents.scale_log2(), statistics);
    gpu::wait_products<0>(ds.values[0]);
    differentiate(ds, p, statistics);
    pack<T>(ds_operand, ds);
    start_multiply_add(dq, ds_operand, memory.keys.tile(tile));
  }

  __device__ void finish(const QueryBlock& block, const QueryPiece& piece) {
    const int first_row = block.first_query + rows.warp_of_block();
    rotate_back(dq, x.rotation, x.extents, block.batch, first_row);
    store(x.dq.rows(block.batch, block.head), first_row, piece, dq,
          RowValues<1>::all(x.extents.scale), memory.outputs, rows.warp_of_block());
    if (!kSumsRows<kHeadSize, kCut> || x.lines == nullptr) return;
    sum_rows<1>(x.line_of(block.batch, first_row, block.head), memory.outputs, rows.warp_of_block(),
                kHeadSize, [&] { sync_consumer(rows); });
  }
};

/// By the consumers' threads: a block.
template <typename T, int kHeadSize, bool kCut>
__device__ void consume(const BackwardArguments<T>& x, const Schedule& schedule, unsigned number,
                        const Memory<T, kHeadSize>& memory, unsigned rows, unsigned& tile) {
  const Extents& n = x.extents;
  Consumer<T, kHeadSize, kCut> consumer(x, memory);
  consumer.begin(QueryBlock(n, schedule, kQueries, number));
  memory.queries.wait(rows);
  memory.d_output.wait(rows);
  for_each_piece_of<kCut, QueryBlock, QueryPiece>(
      number, n, schedule, x.runs, [&](const QueryBlock& block, const QueryPiece& piece) {
        const PieceKeys<kKeys> keys(block, piece, n);
        consumer.visit(block, piece, keys, tile);
        tile += keys.tiles;
        if (piece.end >= block.end(n)) {
          memory.queries.release(rows);
          memory.d_output.release(rows);
        }
        consumer.finish(block, piece);
      });
}

}  // namespace tessera::cuda::attention::query_gradient
