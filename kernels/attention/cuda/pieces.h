// The pieces into which first_key cuts a block's rows.
//
// A block owns rows (queries or keys) at places that do not depend on first_key. It takes its pieces
// one after the other, as if each were a sequence of its own: tiles of columns are counted from the
// piece's start, and rows of other pieces are computed with but not stored.
//
//   first_key       0 0 0 0 0 0 6 6 | 6 6 6 11 11 11 14 14      | borders of blocks
//   query pieces    [---------] [-]   [---] [------] [---]
//
// An undefined first_key (null) is one piece that begins at 0, which the compiler folds away.
#pragma once

#include "kernels/attention/cuda/arguments.h"
#include "kernels/cuda/fault.h"

namespace tessera::cuda::attention {

/// Tokens [first, end).
struct TokenRange {
  int first, end;
};

/// Queries of a block with the same first key.
struct QueryPiece : TokenRange {
  int first_key;
};

/// Keys of a block that the same queries may see, but for the causal mask.
struct KeyPiece : TokenRange {
  TokenRange queries;
};

/// The first index in [low, high) whose first key is beyond `key`, or high.
__device__ inline int first_beyond(const std::int32_t* first_keys, int low, int high, int key) {
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (first_keys[middle] > key) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

/// The piece that begins at query `first`. It ends before query `limit`. Its first key is one that
/// its queries see, even if the tensor breaks its rules.
__device__ inline QueryPiece query_piece(const std::int32_t* first_keys, const Extents& n,
                                         int first, int limit) {
  if (first_keys == nullptr) return {{0, n.queries}, 0};
  const int key = first_keys[first];
  return {{first, first_beyond(first_keys, first + 1, limit, key)},
          min(max(key, 0), first + n.shift())};
}

/// The piece that begins at key `first`. It ends before key `limit`. Keys before the first query's
/// first key are seen by no query.
__device__ inline KeyPiece key_piece(const std::int32_t* first_keys, const Extents& n, int first,
                                     int limit) {
  if (first_keys == nullptr) return {{0, n.keys}, {0, n.queries}};
  const int end_query = first_beyond(first_keys, 0, n.queries, first);
  const int end = end_query < n.queries ? min(limit, first_keys[end_query]) : limit;
  if (end_query == 0) return {{first, end}, {0, 0}};
  return {{first, end}, {max(first_keys[end_query - 1] - n.shift(), 0), end_query}};
}

__device__ inline QueryPiece piece_of(const QueryBlock& block, const std::int32_t* first_keys,
                                      const Extents& n, int first) {
  return query_piece(first_keys, n, first, block.end(n));
}
__device__ inline KeyPiece piece_of(const KeyBlock& block, const std::int32_t* first_keys,
                                    const Extents& n, int first) {
  return key_piece(first_keys, n, first, block.end(n));
}

/// Calls f(block, piece) for the pieces of the thread block's rows, with all of its threads. Its
/// other shared memory is free for each call.
///
/// The piece lies in shared memory, and the block is found again for every piece: registers are
/// scarce in f, and hold nothing from one piece to the next. Without kCut, first_key is null.
template <typename Block, typename Piece, bool kCut, typename F>
__device__ void for_each_piece(const Schedule& schedule, int rows, const Extents& n,
                               const std::int32_t* first_key, F f) {
  if constexpr (!kCut) {
    const Block block(n, schedule, rows);
    f(block, piece_of(block, nullptr, n, block.first()));
  } else {
    TESSERA_SHARED(Piece, piece, );
    for (int next = 0;;) {
      const Block block(n, schedule, rows);
      if (threadIdx.x == 0) {
        piece =
            piece_of(block, first_keys_of(first_key, block.batch, n), n, max(next, block.first()));
      }
      __syncthreads();
      f(block, piece);
      next = piece.end;
      if (next >= Block(n, schedule, rows).end(n)) return;
      __syncthreads();  // all warps are done with the last piece
    }
  }
}

/// Reports the query if its first key is below the one before it, or beyond the query.
template <typename T>
__device__ void check_first_key(const ForwardArguments<T>& x, int batch, int query) {
  const Extents& n = x.extents;
  if (x.first_key == nullptr) return;
  const std::int32_t* const first_keys = first_keys_of(x.first_key, batch, n);
  const int least = query == 0 ? 0 : first_keys[query - 1];
  if (first_keys[query] >= least && first_keys[query] <= query + n.shift()) return;
  gpu::report(x.fault, static_cast<std::int64_t>(batch) * n.queries + query);
}

/// Checks the block's queries. The blocks of one head check the tensor together.
template <typename T>
__device__ void check_first_keys(const ForwardArguments<T>& x, const QueryBlock& block) {
  const int row = static_cast<int>(threadIdx.x), query = block.first_query + row;
  if (block.head != 0 || row >= block.rows || query >= x.extents.queries) return;
  check_first_key(x, block.batch, query);
}

}  // namespace tessera::cuda::attention
