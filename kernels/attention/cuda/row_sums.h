// Sums of the gradients' rows, which a bias of queries, keys and values needs.
//
// A tile of dQ, dK or dV leaves through shared memory (store, fragments.h). There its warps add up the
// rows, as they were rounded, and write the sums to their part of a line:
//
//             dQ of the heads     | dK of the kv_heads | dV of the kv_heads
//   line 0    tokens 0 .. 63      |                    |                        of batch element 0
//   line 1    tokens 64 .. 127    |                    |
//
// Every number is written once, by the tile of its tokens and its head.
#pragma once

#include "kernels/attention/cuda/fragments.h"

namespace tessera::cuda::attention {

/// Where a piece of rows is a whole block, and lines are no larger than it.
template <int kHeadSize, bool kCut>
inline constexpr bool kSumsRows = !kCut && kHeadSize <= kMostSummedChannels;

/// Adds up the rows that the warp has just stored from its rows of `tile`, from row `first` on. Rows behind the
/// last token are zeros. Warps with rows of one line write its sums together to `line`, which is null if it
/// has no token. `sync` is a barrier of at least these warps. All of them call this, and may store again
/// afterwards.
template <int kM, typename T, int kRows, int kHeadSize, typename Sync>
__device__ void sum_rows(float* line, const SharedTile<T, kRows, kHeadSize>& tile, int first,
                         int channels, Sync sync) {
  constexpr int kRowsOfWarp = 16 * kM, kWarps = kTokensOfLine / kRowsOfWarp;
  constexpr int kPairs = (kHeadSize + 63) / 64;
  constexpr int kFloatsOfRow = kRowStride<kHeadSize> * static_cast<int>(sizeof(T)) / 4;
  const int lane = unhoisted_lane();
  float2 sums[kPairs] = {};
#pragma unroll 4
  for (int row = 0; row < kRowsOfWarp; ++row) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int chunk = 8 * i + lane / 4;
      if (chunk * 8 >= channels) continue;
      const T* const at = tile.data + place_of<kHeadSize>(first + row, chunk) + lane % 4 * 2;
      const float2 pair = gpu::unpack<T>(*reinterpret_cast<const unsigned*>(at));
      sums[i].x += pair.x;
      sums[i].y += pair.y;
    }
  }
  __syncwarp();  // the rows have been read, and the sums take their place
  float* const rows = reinterpret_cast<float*>(tile.data);
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const int channel = 64 * i + 2 * lane;
    if (channel < channels) {
      *reinterpret_cast<float2*>(rows + first * kFloatsOfRow + channel) = sums[i];
    }
  }
  sync();
  const int warp = first / kRowsOfWarp % kWarps;
  const float* const of_line = rows + (first - warp * kRowsOfWarp) * kFloatsOfRow;
  for (int channel = 32 * warp + lane; line != nullptr && channel < channels;
       channel += 32 * kWarps) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) sum += of_line[i * kRowsOfWarp * kFloatsOfRow + channel];
    line[channel] = sum;
  }
  sync();
}

}  // namespace tessera::cuda::attention
