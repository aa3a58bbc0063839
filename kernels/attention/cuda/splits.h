// The splits of a query's keys (decoding.cu), and how they are combined.
//
//   keys       0 .. 127     128 .. 255     256 .. 383   ...    counted from the query's first key
//   splits     m0, l0, a0   m1, l1, a1     m2, l2, a2          largest score, sum of weights, weighted values
//   combine    m = max(m0, m1, ...);   l = sum of 2^(mi - m) li;   o = sum of 2^(mi - m) ai / l
//
// Splits depend on the query's own keys alone, and are added in a fixed order. So the bits do not depend on
// the batch or on the GPU.
#pragma once

#include "kernels/attention/cuda/arguments.h"
#include "kernels/attention/cuda/launchers.h"

namespace tessera::cuda::attention {

inline constexpr int kSplitKeys = static_cast<int>(kKeysOfSplit);

/// The results of splits, in order batch, head, split.
struct Splits {
  int count;          // for a query that sees all keys
  float* outputs;     // [batch heads, count, head_size]
  float2* softmaxes;  // [batch heads, count]: the largest score in base 2, the sum of weights

  __device__ std::int64_t place(int all_head, int split) const {
    return static_cast<std::int64_t>(all_head) * count + split;
  }
};

/// The first key that a batch element's query sees.
template <typename T>
__device__ int first_key_of(const ForwardArguments<T>& x, int batch) {
  return x.runs.queries == nullptr ? 0 : x.runs.queries[batch].first_key;
}

/// By a launch: the query's output and logsumexp of all heads.
void combine_splits(const ForwardCall& call, const Splits& splits);

}  // namespace tessera::cuda::attention
