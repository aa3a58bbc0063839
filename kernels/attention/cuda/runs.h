// The runs of queries with the same first key, found before a pass of attention.
//
//   token       0 1 2 3 4 5 6 7 8 9
//   first_key   0 0 0 0 0 0 6 6 6 6
//   QueryRun    {0, 6} six times, {6, 10} four times             of each query
//   KeyRun      {6, 0, 6} six times, {10, 6, 10} four times      of each key
//
// A launch finds them. The kernels read a run in one load where a piece begins (pieces.h). A search in
// first_key takes a chain of log2(T) loads, and registers that their loops do not have.
#pragma once

#include <cstdint>

#include "kernels/attention/op.h"

namespace tessera::cuda::attention {

/// Queries before `end` have the query's first key, which is one that it sees even if the tensor breaks its
/// rules.
struct alignas(8) QueryRun {
  int first_key, end;
};

/// Keys before `end` are seen by the queries [first_query, end_query) that see the key, but for the causal
/// mask.
struct alignas(16) KeyRun {
  int end, first_query, end_query, unused;  // 16 bytes: one load
};

/// In device memory, for every batch element. Null without first_key; forward has no runs of keys.
struct Runs {
  QueryRun* queries = nullptr;
  KeyRun* keys = nullptr;
};

/// Their memory, from the launch that finds them to the last kernel that reads them.
struct RunTensors {
  Tensor queries, keys;  // i32 [B, Tq, 2] and [B, Tkv, 4]

  Runs runs() const;
};

/// The runs that a pass reads. Forward also checks the numbers of first_key: the stream's next
/// synchronization raises Error for one that is below the one before it, or beyond its query.
enum class Pass { forward, backward };
RunTensors find_runs(Pass pass, const Tensor& first_key, const Heads& q, const Heads& k);

}  // namespace tessera::cuda::attention
