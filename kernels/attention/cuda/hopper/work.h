// The blocks of rows that a thread block of a persistent grid takes.
//
// A multiprocessor has room for one thread block of these kernels. So the grid has as many as there
// are multiprocessors, and each takes several blocks of rows: the producer loads the next one's tiles
// while the consumers still compute. The schedule begins with the longest blocks of rows. Going back
// and forth gives every thread block about the same sum:
//
//   thread block    0   1   2   3
//   round 0         0   1   2   3        blocks of rows, by falling length
//   round 1         7   6   5   4
//   round 2         8   9  10  11
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/attention/cuda/pieces.h"
#include "kernels/attention/cuda/tiles.h"
#include "kernels/cuda/device_attributes.h"
#include "kernels/cuda/tile_ring.h"

namespace tessera::cuda::attention {

using gpu::ConsumerRows;
using gpu::TileRing;

/// A consumer owns 64 rows.
inline constexpr int kRowsOfBlock = 64 * gpu::kConsumers;

/// Calls f(number) for the thread block's blocks of rows, of `count` in all.
template <typename F>
__device__ void for_each_block(unsigned count, F f) {
  for (unsigned round = 0; round * gridDim.x < count; ++round) {
    const unsigned place = round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x;
    const unsigned number = round * gridDim.x + place;
    if (number < count) f(number);
  }
}

/// Calls f(block, piece) for the pieces of the block of rows `number`. Every thread finds them on its
/// own. The block is found again for every piece: registers are scarce in f.
template <bool kCut, typename Block, typename Piece, typename F>
__device__ void for_each_piece_of(unsigned number, const Extents& n, const Schedule& schedule,
                                  const std::int32_t* first_key, F f) {
  if constexpr (!kCut) {
    const Block block(n, schedule, kRowsOfBlock, number);
    f(block, piece_of(block, nullptr, n, block.first()));
  } else {
    for (int next = 0;;) {
      const Block block(n, schedule, kRowsOfBlock, gpu::unhoisted(number));
      const Piece piece =
          piece_of(block, first_keys_of(first_key, block.batch, n), n, max(next, block.first()));
      f(block, piece);
      next = piece.end;
      if (next >= Block(n, schedule, kRowsOfBlock, gpu::unhoisted(number)).end(n)) return;
    }
  }
}

/// The keys that a piece of queries sees, in tiles of kKeys.
template <int kKeys>
struct PieceKeys {
  int count, tiles;

  __device__ PieceKeys(const QueryBlock& block, const QueryPiece& piece, const Extents& n)
      : count(block.visible_keys(n, piece.end) - piece.first_key),
        tiles((count + kKeys - 1) / kKeys) {}
  __device__ int of_last_tile() const { return count - (tiles - 1) * kKeys; }
};

/// The schedule for a persistent grid. With few blocks of rows in a section, a thread block's turns
/// would all be long ones, or all short ones: a section has work for four rounds. A head has `blocks`
/// blocks of rows.
inline Schedule persistent_schedule(Schedule schedule, unsigned blocks) {
  const auto work = 4 * static_cast<unsigned>(gpu::multiprocessors());
  const unsigned least = (work + blocks - 1) / blocks;
  schedule.section = std::min(std::max(schedule.section, least), schedule.heads);
  return schedule;
}
inline dim3 persistent_grid(unsigned blocks) {
  return dim3(std::min(blocks, static_cast<unsigned>(gpu::multiprocessors())));
}

/// The order of a backward pass: the blocks of keys of a section of heads, the longest first, and then
/// the blocks of queries of these heads.
struct BackwardSchedule {
  Schedule keys, queries;

  BackwardSchedule(const Extents& n, std::size_t bytes_of_element)
      : keys(n.keys, kRowsOfBlock, std::int64_t{n.batch} * n.kv_heads,
             static_cast<std::int64_t>(2 * bytes_of_element) * n.head_size *
                 (std::int64_t{n.queries} * n.group() + n.keys)),
        queries(n.queries, kRowsOfBlock, std::int64_t{n.batch} * n.heads, 0) {
    const auto group = static_cast<unsigned>(n.group());
    keys = persistent_schedule(keys, keys.tiles + group * queries.tiles);
    queries.section = group * keys.section;
  }

  __host__ __device__ unsigned count() const { return keys.count() + queries.count(); }

  /// Calls of_keys(number) or of_queries(number) for each of the thread block's blocks of rows, with
  /// the block's number in its own schedule.
  template <typename Keys, typename Queries>
  __device__ void for_each_block(Keys of_keys, Queries of_queries) const {
    attention::for_each_block(count(), [&](unsigned number) {
      // Computed for each block: registers are scarce in the parts.
      const unsigned keys_of_section = gpu::unhoisted(keys.tiles * keys.section);
      const unsigned queries_of_section = gpu::unhoisted(queries.tiles * queries.section);
      const unsigned section = number / (keys_of_section + queries_of_section);
      const unsigned first_key = section * keys_of_section;
      const unsigned first_query = section * queries_of_section;
      const unsigned place = number - first_key - first_query;
      const unsigned keys_here = min(keys_of_section, keys.count() - first_key);
      if (place < keys_here) {
        of_keys(first_key + place);
      } else {
        of_queries(first_query + place - keys_here);
      }
    });
  }
};

/// The tensor map of heads, for tiles of `rows` tokens.
inline gpu::TensorMap map_of(const Heads& x, int rows) {
  const auto bytes = static_cast<std::int64_t>(size_of(x.tensor.dtype()));
  // A single token or batch element has any stride, but the copy engine takes none of 0.
  const auto stride = [&](std::int64_t elements) {
    return std::max<std::int64_t>(elements * bytes, 16);
  };
  const auto* const data = static_cast<const std::byte*>(x.tensor.raw()) + x.offset * bytes;
  return gpu::tensor_map(data,
                         {.channels = x.head_size,
                          .tokens = x.tokens,
                          .heads = x.heads,
                          .batch = x.batch,
                          .token_stride = stride(x.token_stride),
                          .head_stride = stride(x.head_size),
                          .batch_stride = stride(x.batch_stride)},
                         rows);
}

/// Calls f(HeadSize<n>{}, T{}) for a call's head size, 64 or 128, and dtype.
template <typename F>
void visit_hopper_heads(const Heads& q, F f) {
  const auto with_head_size = [&](auto element) {
    q.head_size == 64 ? f(HeadSize<64>{}, element) : f(HeadSize<128>{}, element);
  };
  q.tensor.dtype() == DType::bf16 ? with_head_size(bfloat16{}) : with_head_size(float16{});
}

}  // namespace tessera::cuda::attention
