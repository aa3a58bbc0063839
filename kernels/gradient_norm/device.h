// Parts of the GPU's two sums of squares: integer_squares.h and f64_squares.h.
//
// A thread has 32 elements in registers, and a warp 1024. Either sum takes those that are not too small
// next to the largest of them. The others wait for another round, relative to the largest that is left.
#pragma once

#include "kernels/cuda/magnitude.h"
#include "kernels/cuda/multi_tensor.h"
#include "kernels/gradient_norm/exact_sum.h"

namespace tessera::cuda {

using Word = unsigned long long;

inline constexpr int kQuads = gpu::kChunk / (4 * gpu::kThreads);  // of a thread
inline constexpr int kElements = 4 * kQuads;

// add_to_words of exact_sum.h, for positions from 0 on.
__device__ inline void add_value(Word* words, Uint128 value, int position) {
  const int shift = position % 32;
  Word* word = words + position / 32;
  *word += static_cast<unsigned>(value << shift);
  for (value >>= 32 - shift; value != 0; value >>= 32) *++word += static_cast<unsigned>(value);
}

}  // namespace tessera::cuda
