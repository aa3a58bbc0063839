// The first key that each query of attention may see: documents in one row, chunks, and windows.
//
//   position    0  1  2  3  4  5  6  7  8  9
//   document    a  a  a  a  a  a  b  b  b  b     starts       0 0 0 0 0 0 6 6 6 6
//   chunk of 4  0  0  0  0  1  1  0  0  0  0     first keys   0 0 0 0 4 4 6 6 6 6
//   window of 3                                  first keys   0 0 0 1 2 3 6 6 6 7
//
// Packed documents: a query sees its own document only. Chunks are Llama 4's local attention
// (transformers 5.23.0, masking_utils.py, chunked_overlay): query i sees key j if both have the
// same number floor(position / chunk), counted from the start of the document. Windows are Mistral's
// (the same file, sliding_window_overlay): a query sees the last `window` keys, its own among them.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/op.h"

namespace tessera {

/// The argument `first_key` of attention, i32 [B, T], on the current context's device.
/// - starts: i32 [B, T], for each token the position where its document starts. The first token of
///   a row is at position `first_position` (the tokens before it are in a cache).
/// - chunk: tokens that see each other; 0 for no chunks.
/// - window: keys that a query sees; 0 for all.
/// Raises Error if a start is negative or after its token, or if chunk or window is negative.
Tensor first_keys(const Tensor& starts, std::int64_t chunk, std::int64_t first_position = 0,
                  std::int64_t window = 0);

/// Consecutive queries of one batch element with the same first key.
struct QueryRun {
  std::int64_t first_query = 0;
  std::int64_t queries = 0;
  std::int64_t first_key = 0;
};

/// The runs of one batch element of `queries` queries, in order. One run from key 0 on if
/// `first_key` is undefined. For tensors on the CPU.
std::vector<QueryRun> query_runs(const Tensor& first_key, std::int64_t batch, std::int64_t queries);

}  // namespace tessera
