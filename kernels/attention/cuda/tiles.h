// Tiles of 16-bit rows in shared memory: how they get there and how tensor cores read them.
//
// A tile is a row of kHeadSize elements per token, cut into chunks of 16 bytes. ldmatrix reads the
// same chunk of eight rows at a time. Rows are 128 or 256 bytes, so these eight would lie in the
// same four of the 32 banks; swizzled, chunk c of row r lies at c ^ (r % 8), and they lie in all
// banks:
//
//              place 0   1   2   3   4   5   6   7
//        row 0    c0  c1  c2  c3  c4  c5  c6  c7
//        row 1    c1  c0  c3  c2  c5  c4  c7  c6
//        row 2    c2  c3  c0  c1  c6  c7  c4  c5        chunk 0 of rows 0 .. 7: a diagonal
//        ...
#pragma once

#include "kernels/attention/cuda/arguments.h"
#include "kernels/cuda/tensor_core.h"

namespace tessera::cuda::attention {

template <typename T, int kRows, int kHeadSize>
struct SharedTile {
  static constexpr int kChunks = kHeadSize / 8;
  static constexpr int kElements = kRows * kHeadSize;
  T* data;

  __device__ T* chunk(int row, int chunk) const {
    return data + row * kHeadSize + (chunk ^ (row & 7)) * 8;
  }
};

/// Two tiles, of which one is computed with while the other is loaded.
template <typename Tile, typename T>
struct DoubleBuffer {
  static constexpr int kElements = 2 * Tile::kElements;
  T* data;

  __device__ Tile operator[](int step) const { return {data + step % 2 * Tile::kElements}; }
};

/// Hands out memory for a tile, or two.
template <typename Tile, typename T>
__device__ Tile take(gpu::SharedMemory& shared) {
  return {shared.take<T>(Tile::kElements, 128)};
}

/// Begins to copy rows [first, first + kRows) of a head; zeros beyond `count` rows.
template <int kThreads, typename T, int kRows, int kHeadSize>
__device__ void load_async(const SharedTile<T, kRows, kHeadSize>& tile, const Rows<T>& source,
                           int first, int count) {
  constexpr int kChunks = kHeadSize / 8, kRowsAtOnce = kThreads / kChunks;
  static_assert(kThreads % kChunks == 0 && kRows % kRowsAtOnce == 0);
  const int chunk = static_cast<int>(threadIdx.x) % kChunks;
#pragma unroll
  for (int i = 0; i < kRows; i += kRowsAtOnce) {
    const int row = i + static_cast<int>(threadIdx.x) / kChunks;
    const bool inside = first + row < count;
    gpu::copy_async(tile.chunk(row, chunk), source[inside ? first + row : 0] + chunk * 8,
                    inside ? 16 : 0);
  }
}

// The operands of mma.m16n8k16, read by ldmatrix as four 8 x 8 matrices; lane l gives the address
// of row l % 8 of matrix l / 8.

/// Rows [row, row + 16) and channels [16 step, 16 step + 16) as a left operand.
template <typename Tile>
__device__ void load_left(unsigned (&a)[4], const Tile& tile, int row, int step) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  gpu::load_matrices<false>(a, tile.chunk(row + lane % 16, 2 * step + lane / 16));
}

/// Two right operands: [channel][row] for channels [16 step, 16 step + 16), rows [row, row + 8) and
/// the 8 after these.
template <typename Tile>
__device__ void load_right(unsigned (&b)[2][2], const Tile& tile, int row, int step) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  unsigned r[4];
  gpu::load_matrices<false>(r, tile.chunk(row + lane / 16 * 8 + lane % 8, 2 * step + lane / 8 % 2));
  b[0][0] = r[0], b[0][1] = r[1], b[1][0] = r[2], b[1][1] = r[3];
}

/// Two right operands: [row][channel] for rows [row, row + 16), channels [8 chunk, 8 chunk + 8) and
/// the 8 after these.
template <typename Tile>
__device__ void load_right_by_rows(unsigned (&b)[2][2], const Tile& tile, int row, int chunk) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  unsigned r[4];
  gpu::load_matrices<true>(r, tile.chunk(row + lane % 16, chunk + lane / 16));
  b[0][0] = r[0], b[0][1] = r[1], b[1][0] = r[2], b[1][1] = r[3];
}

}  // namespace tessera::cuda::attention
