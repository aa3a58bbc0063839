// The pieces into which first_key cuts a block's rows.
//
// A block owns rows (queries or keys) at places that do not depend on first_key. It takes its pieces
// one after the other, as if each were a sequence of its own: tiles of columns are counted from the
// piece's start, and rows of other pieces are computed with but not stored.
//
//   first_key       0 0 0 0 0 0 6 6 | 6 6 6 11 11 11 14 14      | borders of blocks
//   query pieces    [---------] [-]   [---] [------] [---]
//
// Without runs (runs.h) there is one piece that begins at 0, which the compiler folds away.
#pragma once

#include "kernels/attention/cuda/arguments.h"

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

/// The piece that begins at query `first`. It ends with the block.
__device__ inline QueryPiece piece_of(const QueryBlock& block, const Runs& runs, const Extents& n,
                                      int first) {
  if (runs.queries == nullptr) return {{0, n.queries}, 0};
  const QueryRun run = runs.queries[static_cast<std::int64_t>(block.batch) * n.queries + first];
  return {{first, min(run.end, block.end(n))}, run.first_key};
}
/// The piece that begins at key `first`. It ends with the block.
__device__ inline KeyPiece piece_of(const KeyBlock& block, const Runs& runs, const Extents& n,
                                    int first) {
  if (runs.keys == nullptr) return {{0, n.keys}, {0, n.queries}};
  const KeyRun run = runs.keys[static_cast<std::int64_t>(block.batch) * n.keys + first];
  return {{first, min(run.end, block.end(n))}, {run.first_query, run.end_query}};
}

/// Calls f(block, piece) for the pieces of the thread block's rows, with all of its threads. Its
/// other shared memory is free for each call.
///
/// The piece lies in shared memory, and the block is found again for every piece: registers are
/// scarce in f, and hold nothing from one piece to the next. Without kCut there are no runs.
template <typename Block, typename Piece, bool kCut, typename F>
__device__ void for_each_piece(const Schedule& schedule, int rows, const Extents& n,
                               const Runs& runs, F f) {
  if constexpr (!kCut) {
    const Block block(n, schedule, rows);
    f(block, piece_of(block, Runs{}, n, block.first()));
  } else {
    TESSERA_SHARED(Piece, piece, );
    for (int next = 0;;) {
      const Block block(n, schedule, rows);
      if (threadIdx.x == 0) {
        piece = piece_of(block, runs, n, max(next, block.first()));
      }
      __syncthreads();
      f(block, piece);
      next = piece.end;
      if (next >= Block(n, schedule, rows).end(n)) return;
      __syncthreads();  // all warps are done with the last piece
    }
  }
}

}  // namespace tessera::cuda::attention
