// dK and dV on Hopper's tensor cores (wgmma, sm_90a): one of the two parts of backward.cu.
//
// Its form is in backward_mma.h: a thread block owns keys and visits queries. It is a producer and two
// consumers, each a warpgroup. A consumer owns 64 keys, and has all four products of its keys. S and P
// have a row per key, so that P and dS are left operands in registers:
//
//   producer     K V  Q0 dO0  Q1 dO1 | Q2 dO2 ...                  waits for free stages
//   consumer 0   [S dP] P [dV] dS [dK S dP] P [dV] dS [dK S dP] P ...
//   consumer 1          [S dP] P [dV] dS [dK S dP] P [dV] dS ...
//
// [...] are the tensor cores, with dV += P dO and dK += dS Q. dP is computed during P, and dV is summed
// during dS. S and dP of the next step are queued behind dK, so that they begin when it ends. In the
// pauses that remain the tensor cores work for the other consumer. Sums have the order of the steps.
#pragma once

#include "kernels/attention/cuda/backward_mma.h"
#include "kernels/attention/cuda/hopper/backward_memory.h"
#include "kernels/attention/cuda/rotate_back.h"
#include "kernels/attention/cuda/row_sums.h"

namespace tessera::cuda::attention::key_value_gradient {

/// A tile of queries is visited in two steps. A step's scores and gradients take the registers that dK
/// and dV leave.
inline constexpr int kKeys = kRowsOfBlock, kTile = kRowsOfBlock, kQueries = 64;

template <typename T, int kHeadSize>
struct Memory {
  using Shared = BackwardMemory<T, kHeadSize>;
  typename Shared::Rows keys, values;
  typename Shared::Columns queries, d_output;
  QueryStatistics* statistics;
  typename Shared::Outputs outputs;

  explicit __device__ Memory(const Shared& shared)
      : keys(shared.rows[0]),
        values(shared.rows[1]),
        queries(shared.columns[0]),
        d_output(shared.columns[1]),
        statistics(shared.statistics),
        outputs(shared.outputs) {}
  __device__ QueryStatistics* statistics_of(unsigned tile) const {
    return statistics + tile % kStages * kTileStatistics;
  }
};

/// The half of a tile that a step visits. A tile has two steps, and steps are counted as tiles are.
struct Half {
  unsigned tile;
  int first;  // its first row of the tile

  explicit __device__ Half(unsigned step)
      : tile(step / 2), first(static_cast<int>(step % 2) * kQueries) {}
};

/// The queries that a piece's keys visit, in each query head of the group: tiles from the first that
/// sees a key of the piece on. Steps are counted from the first query that sees the piece's document.
struct PieceQueries {
  int begin, end;  // the first tile begins at `begin`
  int odd;         // the statistics are copied from an even query on
  int seen_by;  // the block's first key is seen by the query begin + seen_by, and those behind it

  __device__ PieceQueries(const KeyBlock& block, const KeyPiece& piece, const Extents& n)
      : end(piece.queries.end), odd(piece.queries.first % 2) {
    const int before = max(block.first_key, piece.first) - n.shift() - piece.queries.first;
    begin = piece.queries.first + max(before, 0) / kQueries * kQueries;
    seen_by = block.first_key - n.shift() - begin;
  }
};

/// By one thread: starts the copies of a block's tiles, in the order in which the consumers take them.
/// `rows` is the place of the block's own rows in their rings, and `tile` that of the next tile.
template <typename T, int kHeadSize, bool kCut>
__device__ void produce(const BackwardArguments<T>& x, const BackwardMaps& maps,
                        const Schedule& schedule, unsigned number,
                        const Memory<T, kHeadSize>& memory, unsigned rows, unsigned& tile) {
  const Extents& n = x.extents;
  const KeyBlock block(n, schedule, kKeys, number);
  const gpu::TilePlace place{0, block.first_key, block.kv_head, block.batch};
  memory.keys.tile(rows).load(maps.k, place, memory.keys.begin_fill(rows));
  memory.values.tile(rows).load(maps.v, place, memory.values.begin_fill(rows));
  for_each_piece_of<kCut, KeyBlock, KeyPiece>(
      number, n, schedule, x.runs, [&](const KeyBlock& block, const KeyPiece& piece) {
        const PieceQueries queries(block, piece, n);
        for (int i = 0; i < n.group(); ++i) {
          const int head = block.kv_head * n.group() + i, odd = kCut ? queries.odd : 0;
          for (int first = queries.begin; first < queries.end; first += kTile, ++tile) {
            constexpr int kBytes = sizeof(QueryStatistics) * (kCut ? kTileStatistics : kTile);
            const gpu::TilePlace place{0, first, head, block.batch};
            gpu::Barrier& full = memory.queries.begin_fill(tile, kBytes);
            memory.queries.tile(tile).load(maps.q, place, full);
            gpu::copy_bytes(memory.statistics_of(tile),
                            x.statistics_of(block.batch, head) + first - odd, kBytes, full);
            memory.d_output.tile(tile).load(maps.d_o, place, memory.d_output.begin_fill(tile));
          }
        }
      });
}

/// A consumer: 64 keys of each block, and the gradients of a piece's keys so far.
template <typename T, int kHeadSize, bool kCut>
struct Consumer {
  const BackwardArguments<T>& x;
  const Memory<T, kHeadSize>& memory;
  Fragment<1, kHeadSize> dk, dv;
  PackedFragment<kQueries> operand;  // P, then dS

  /// Found again where they are needed, instead of kept in a register.
  __device__ static ConsumerRows rows() { return {}; }

  __device__ Consumer(const BackwardArguments<T>& arguments, const Memory<T, kHeadSize>& shared)
      : x(arguments), memory(shared) {}
  /// `tile` is the number of the piece's first, and then of the next piece's. find() gives the piece's
  /// queries, again for every head.
  template <typename Find>
  __device__ void visit(Find find, unsigned& tile) {
    dk.clear();
    dv.clear();
    unsigned step = 2 * tile;
    for (int i = 0; i < x.extents.group(); ++i) {
      const PieceQueries queries = find();
      // The consumer's first key is seen by a step's queries from this one on.
      int first_seen_by = queries.seen_by + rows().first();
      int count = queries.end - queries.begin;
      for (; count > 0; count -= kQueries, first_seen_by -= kQueries, ++step) {
        const Half half(step);
        const auto q = memory.queries.wait(half.tile), d_o = memory.d_output.wait(half.tile);
        QueryStatistics* const statistics =
            memory.statistics_of(half.tile) + half.first + (kCut ? queries.odd : 0);
        if (kCut && count < kQueries) hide_queries(q, d_o, statistics, half.first, count);
        if (first_seen_by < kQueries) {
          add_step(half, q, d_o, statistics, first_seen_by);
        } else {
          end_step_before<0>(half);
        }
      }
      step += step % 2;  // the next head begins with a tile
    }
    gpu::wait_products<0>(dk.values[0]);
    tile = step / 2;
  }

  /// Starts to add a step's products. dK of the step before may still run.
  template <typename Tile>
  __device__ void add_step(const Half& half, const Tile& queries, const Tile& d_output,
                           const QueryStatistics* statistics, int first_seen_by) {
    Fragment<1, kQueries> p, ds;
    start_multiply(p, memory.keys.tile(0), rows().first(), queries, half.first);
    end_step_before<1>(half);
    start_multiply(ds, memory.values.tile(0), rows().first(), d_output, half.first);  // dP = V dO^T
    gpu::wait_products<1>(p.values[0]);
    if (first_seen_by + 63 > 0) {
      const int of_warp = first_seen_by + ConsumerRows::of_warp();
      mask(p, [&](int key, int query) { return key + of_warp <= query; });
    }
    weights_from(p, statistics);
    pack<T>(operand, p);
    start_multiply_add(dv, operand, d_output, half.first);
    gpu::wait_products<1>(ds.values[0]);
    differentiate(ds, p, statistics);
    gpu::wait_products<0>(dv.values[0]);
    pack<T>(operand, ds);
    start_multiply_add(dk, operand, queries, half.first);
    // With pieces, heads of 128 leave too few registers for products of two steps.
    if (kCut && kHeadSize == 128) gpu::wait_products<0>(dk.values[0]);
  }

  /// Waits for dK of the step before, but not for the kInFlight groups that have started since.
  template <int kInFlight>
  __device__ void end_step_before(const Half& half) {
    gpu::wait_products<kInFlight>(dk.values[0]);
    if (half.first == 0) release_before(half.tile, memory.queries, memory.d_output);
  }

  /// Queries of other pieces may be NaN, and 0 times NaN is NaN. They become zeros, with statistics
  /// that make P and dS zero.
  template <typename Tile>
  __device__ static void hide_queries(const Tile& queries, const Tile& d_output,
                                      QueryStatistics* statistics, int first, int count) {
    const int thread = static_cast<int>(threadIdx.x) - gpu::kWarpgroup;
    if (thread >= count && thread < kQueries) statistics[thread] = {INFINITY, 0.0f};
    gpu::clear_rows(first + count, queries, d_output);
  }
  /// P from S.
  __device__ void weights_from(Fragment<1, kQueries>& p, const QueryStatistics* statistics) const {
    const LanePlaces places;
    const float scale_log2 = x.extents.scale_log2();
    p.for_each([&](float& value, int, int n, int i) {
      const float logsumexp = statistics[places.column_of(n, i)].logsumexp;
      value = gpu::fast_exp2(fmaf(value, scale_log2, -logsumexp));
    });
  }
  /// ds = dS = P * (dP - D), from dP.
  __device__ static void differentiate(Fragment<1, kQueries>& ds, const Fragment<1, kQueries>& p,
                                       const QueryStatistics* statistics) {
    const LanePlaces places;
    ds.for_each([&](float& value, int, int n, int i) {
      value = p.values[0][n][i] * (value - statistics[places.column_of(n, i)].delta);
    });
  }

  __device__ void finish(const KeyBlock& block, const KeyPiece& piece) {
    const int first_row = block.first_key + rows().warp_of_block();
    store(x.dv.rows(block.batch, block.kv_head), first_row, piece, dv, RowValues<1>::all(1.0f),
          memory.outputs, rows().warp_of_block());
    sum_rows_of(block, x.extents.heads + x.extents.kv_heads);
    rotate_back(dk, x.rotation, x.extents, block.batch, first_row);
    store(x.dk.rows(block.batch, block.kv_head), first_row, piece, dk,
          RowValues<1>::all(x.extents.scale), memory.outputs, rows().warp_of_block());
    sum_rows_of(block, x.extents.heads);
  }
  /// The rows were stored last. In a line the heads of this gradient begin at `first_head`.
  __device__ void sum_rows_of(const KeyBlock& block, int first_head) {
    if (!kSumsRows<kHeadSize, kCut> || x.lines == nullptr) return;
    const int first_row = block.first_key + rows().warp_of_block();
    sum_rows<1>(x.line_of(block.batch, first_row, first_head + block.kv_head), memory.outputs,
                rows().warp_of_block(), kHeadSize, [&] { sync_consumer(rows()); });
  }
};

/// By the consumers' threads: a block.
template <typename T, int kHeadSize, bool kCut>
__device__ void consume(const BackwardArguments<T>& x, const Schedule& schedule, unsigned number,
                        const Memory<T, kHeadSize>& memory, unsigned rows, unsigned& tile) {
  const Extents& n = x.extents;
  Consumer<T, kHeadSize, kCut> consumer(x, memory);
  memory.keys.wait(rows);
  memory.values.wait(rows);
  for_each_piece_of<kCut, KeyBlock, KeyPiece>(
      number, n, schedule, x.runs, [&](const KeyBlock&, const KeyPiece& piece) {
        // A piece is read again where it is needed, instead of kept in registers.
        const auto piece_again = [&, first = piece.first](const KeyBlock& block) {
          return piece_of(block, kCut ? x.runs : Runs{}, n, first);
        };
        consumer.visit(
            [&] {
              const auto block = block_again<KeyBlock>(number, n, schedule);
              return PieceQueries(block, piece_again(block), n);
            },
            tile);
        const auto block = block_again<KeyBlock>(number, n, schedule);
        if (piece.end >= block.end(n)) {
          memory.keys.release(rows);
          memory.values.release(rows);
        }
        consumer.finish(block, piece_again(block));
      });
}

}  // namespace tessera::cuda::attention::key_value_gradient
