// The blocks of rows that a thread block of a persistent grid takes.
//
// A multiprocessor has room for one thread block of these kernels. So the grid has as many as there
// are multiprocessors, and each takes several blocks of rows from a queue (kernels/cuda/work_queue.h):
// the producer loads the next one's tiles while the consumers still compute. The schedule begins with
// the longest blocks of rows.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/attention/cuda/pieces.h"
#include "kernels/attention/cuda/tiles.h"
#include "kernels/cuda/device_attributes.h"
#include "kernels/cuda/work_queue.h"
#include "runtime/cuda/stream.h"

namespace tessera::cuda::attention {

using gpu::ConsumerRows;
using gpu::TileRing;

/// A consumer owns 64 rows.
inline constexpr int kRowsOfBlock = 64 * gpu::kConsumers;

/// Calls f(block, piece) for the pieces of the block of rows `number`. Every thread finds them on its
/// own. The block is found again for every piece: registers are scarce in f.
template <bool kCut, typename Block, typename Piece, typename F>
__device__ void for_each_piece_of(unsigned number, const Extents& n, const Schedule& schedule,
                                  const Runs& runs, F f) {
  if constexpr (!kCut) {
    const Block block(n, schedule, kRowsOfBlock, number);
    f(block, piece_of(block, Runs{}, n, block.first()));
  } else {
    for (int next = 0;;) {
      const Block block(n, schedule, kRowsOfBlock, gpu::unhoisted(number));
      const Piece piece = piece_of(block, runs, n, max(next, block.first()));
      f(block, piece);
      next = piece.end;
      if (next >= Block(n, schedule, kRowsOfBlock, gpu::unhoisted(number)).end(n)) return;
    }
  }
}

/// The block of rows `number`, found again: values that would fill registers meanwhile.
template <typename Block>
__device__ Block block_again(unsigned number, const Extents& n, const Schedule& schedule) {
  return Block(n, schedule, kRowsOfBlock, gpu::unhoisted(number));
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

/// The schedule for a persistent grid. The last section's longest blocks of rows would be the last to
/// end if there were few shorter ones behind them: a section has two for each thread block.
inline Schedule persistent_schedule(const Schedule& schedule) {
  const std::int64_t work = 2 * gpu::multiprocessors();
  return schedule.with_sections(
      std::max<std::int64_t>(schedule.section, ceil_div(work, std::int64_t{schedule.tiles})));
}
inline gpu::WorkQueue work_queue(unsigned count) {
  return {count, tickets(current_stream())};
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
    keys = persistent_schedule(keys);
    queries.section = static_cast<unsigned>(n.group()) * keys.section;
  }

  __host__ __device__ unsigned count() const { return keys.count() + queries.count(); }

  /// Calls of_keys(number) or of_queries(number) for a block of rows, with its number in its own
  /// schedule.
  template <typename Keys, typename Queries>
  __device__ void visit(unsigned number, Keys of_keys, Queries of_queries) const {
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
