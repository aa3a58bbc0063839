// How a warpgroup's results reach memory: 16 bytes at a time, without shared memory.
//
// wgmma leaves each lane two neighbours of a row, 4 bytes in 16 bits. The four lanes of a row exchange
// their words of four pieces of eight columns, so that each has all eight columns of one piece:
//
//   lane       0   1   2   3                  0   1   2   3
//   piece 0   a0  a1  a2  a3                 a0  b0  c0  d0
//   piece 1   b0  b1  b2  b3    becomes      a1  b1  c1  d1      one store per lane,
//   piece 2   c0  c1  c2  c3                 a2  b2  c2  d2      64 bytes of the row
//   piece 3   d0  d1  d2  d3                 a3  b3  c3  d3
#pragma once

#include "kernels/cuda/numeric.h"
#include "kernels/cuda/reduce.h"

namespace tessera::cuda::groups {

/// Transposes the words of four neighbouring lanes. All lanes of the warp call this.
__device__ inline void transpose_words(unsigned (&words)[4]) {
  const unsigned lane = threadIdx.x % 32;
#pragma unroll
  for (int distance = 1; distance < 4; distance *= 2) {
    const bool upper = (lane & static_cast<unsigned>(distance)) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & distance) != 0) continue;
      const unsigned low = words[i], high = words[i + distance];
      const unsigned other = __shfl_xor_sync(gpu::kFullWarp, upper ? low : high, distance);
      words[i] = upper ? other : low;
      words[i + distance] = upper ? high : other;
    }
  }
}

/// Stores a row's values of four pieces of eight columns, or adds them to it. `row` is at the first of
/// the 32 columns; it has `columns` from there on, and is not stored unless `inside`. All lanes of the
/// warp call this.
template <typename U>
__device__ void store_columns(U* row, int columns, bool inside, const float (&values)[4][2],
                              bool accumulate) {
  const int lane = static_cast<int>(threadIdx.x) % 4;
  if constexpr (sizeof(U) == 2) {
    auto* const to = reinterpret_cast<uint4*>(row + 8 * lane);
    inside = inside && 8 * lane < columns;
    unsigned words[4] = {};
    gpu::Vector<U> sums;
#pragma unroll
    for (int i = 0; i < 8; ++i) sums.values[i] = values[i / 2][i % 2];
    if (accumulate) {
      const uint4 old = inside ? *to : uint4{0, 0, 0, 0};
      words[0] = old.x, words[1] = old.y, words[2] = old.z, words[3] = old.w;
      transpose_words(words);
      const auto before = gpu::Vector<U>::unpack({words[0], words[1], words[2], words[3]});
#pragma unroll
      for (int i = 0; i < 8; ++i) sums.values[i] = before.values[i] + sums.values[i];
    }
#pragma unroll
    for (int piece = 0; piece < 4; ++piece) {
      words[piece] = gpu::pack<U>(sums.values[2 * piece], sums.values[2 * piece + 1]);
    }
    transpose_words(words);
    if (inside) *to = uint4{words[0], words[1], words[2], words[3]};
  } else {
#pragma unroll
    for (int piece = 0; piece < 4; ++piece) {
      if (!inside || 8 * piece >= columns) continue;
      auto* const to = reinterpret_cast<float2*>(row + 8 * piece + 2 * lane);
      float2 sum{values[piece][0], values[piece][1]};
      if (accumulate) sum.x += to->x, sum.y += to->y;
      *to = sum;
    }
  }
}

}  // namespace tessera::cuda::groups
