// Tiles of 16-bit rows in shared memory: how they are loaded and how tensor cores read them.
//
// A tile is a row of kHeadSize elements per token, cut into chunks of 16 bytes. ldmatrix reads the
// same chunk of eight rows at a time. Rows lie 128, 256 or 512 bytes apart (heads of 80 and 96 leave
// the rest of 256 bytes empty), so without a swizzle these eight chunks share four of the 32 banks. With
// it, chunk c of row r lies at c ^ (r % 8), and the eight chunks cover all banks:
//
//              place 0   1   2   3   4   5   6   7
//        row 0    c0  c1  c2  c3  c4  c5  c6  c7
//        row 1    c1  c0  c3  c2  c5  c4  c7  c6
//        row 2    c2  c3  c0  c1  c6  c7  c4  c5        chunk 0 of rows 0 .. 7: a diagonal
//        ...
#pragma once

#include "kernels/attention/cuda/arguments.h"
#include "kernels/cuda/numeric.h"
#include "kernels/cuda/tensor_core.h"

namespace tessera::cuda::attention {

/// Elements from one row of a tile to the next.
template <int kHeadSize>
constexpr int kRowStride = (kHeadSize + 63) / 64 * 64;

/// The place of chunk `chunk` of row `row`, in elements. From one place others follow by constants:
/// eight rows down is + 8 kRowStride, and an even number c of chunks to the right is ^ 8 c.
template <int kHeadSize>
__device__ int place_of(int row, int chunk) {
  return row * kRowStride<kHeadSize> + (chunk ^ (row & 7)) * 8;
}

template <typename T, int kRows, int kHeadSize>
struct SharedTile {
  static constexpr int kElements = kRows * kRowStride<kHeadSize>;
  T* data;
};

/// Two tiles: the kernel computes with one while the other is loaded.
template <typename Tile, typename T>
struct DoubleBuffer {
  static constexpr int kElements = 2 * Tile::kElements;
  T* data;

  __device__ Tile operator[](int step) const { return {data + step % 2 * Tile::kElements}; }
};

/// Memory for a tile or a double buffer.
template <typename Tile, typename T>
__device__ Tile take(gpu::SharedMemory& shared) {
  return {shared.take<T>(Tile::kElements, 128)};
}

/// Starts to copy rows [first, first + kRows) of a head, with zeros beyond `count` rows and in the channels
/// that the head lacks.
template <int kThreads, typename T, int kRows, int kHeadSize>
__device__ void load_async(const SharedTile<T, kRows, kHeadSize>& tile, const Rows<T>& source,
                           int first, int count) {
  constexpr int kStride = kRowStride<kHeadSize>, kChunks = kStride / 8;
  constexpr int kRowsAtOnce = kThreads / kChunks;
  static_assert(kThreads % kChunks == 0 && kRows % kRowsAtOnce == 0 && kRowsAtOnce % 4 == 0);
  const unsigned thread = gpu::unhoisted(threadIdx.x);
  const int row = static_cast<int>(thread / kChunks), chunk = static_cast<int>(thread % kChunks);
  if (kHeadSize < kStride && chunk >= kHeadSize / 8) return;
  const int end = chunk * 8 < source.channels ? count : 0;
  const T* from = source[first + row] + chunk * 8;
  const int place = place_of<kHeadSize>(row, chunk);
#pragma unroll
  for (int i = 0; i < kRows; i += kRowsAtOnce) {
    // Four rows down a chunk's place changes in bit 2: r % 8 ^ 4.
    T* const to = tile.data + i * kStride + (place ^ i % 8 * 8);
    gpu::copy_async(to, from, first + row + i < end ? 16 : 0);
    from += kRowsAtOnce * source.stride;
  }
}

// Readers of the operands of mma.m16n8k16. ldmatrix reads four 8 x 8 matrices: lane l gives the
// address of row l % 8 of matrix l / 8. Each reader holds its lane's place in the tile's first 16
// rows and 16 channels.

__device__ inline int unhoisted_lane() {
  return static_cast<int>(gpu::unhoisted(threadIdx.x) % 32);
}

/// The tile's rows are the rows of the left operand.
template <int kHeadSize>
struct LeftReader {
  int place;

  explicit __device__ LeftReader(int first_row) {
    const int lane = unhoisted_lane();
    place = place_of<kHeadSize>(first_row + lane % 16, lane / 16);
  }
  /// 16 rows from row 16 m, 16 channels from channel 16 step.
  template <typename T>
  __device__ void read(unsigned (&a)[4], const T* tile, int m, int step) const {
    gpu::load_matrices<false>(a, tile + 16 * m * kRowStride<kHeadSize> + (place ^ 16 * step));
  }
};

/// The tile's rows are the columns of the right operand.
template <int kHeadSize>
struct TransposedReader {
  int place;

  __device__ TransposedReader() {
    const int lane = unhoisted_lane();
    place = place_of<kHeadSize>(lane / 16 * 8 + lane % 8, lane / 8 % 2);
  }
  /// Two operands of 8 columns each: channels from 16 step, rows from 16 n.
  template <typename T>
  __device__ void read(unsigned (&b)[2][2], const T* tile, int n, int step) const {
    unsigned r[4];
    gpu::load_matrices<false>(r, tile + 16 * n * kRowStride<kHeadSize> + (place ^ 16 * step));
    b[0][0] = r[0], b[0][1] = r[1], b[1][0] = r[2], b[1][1] = r[3];
  }
};

/// The tile's rows are the rows of the right operand.
template <int kHeadSize>
struct RightReader {
  int place;

  __device__ RightReader() : place(LeftReader<kHeadSize>(0).place) {}
  /// Two operands of 8 columns each: rows from 16 step, channels from 16 n.
  template <typename T>
  __device__ void read(unsigned (&b)[2][2], const T* tile, int n, int step) const {
    unsigned r[4];
    gpu::load_matrices<true>(r, tile + 16 * step * kRowStride<kHeadSize> + (place ^ 16 * n));
    b[0][0] = r[0], b[0][1] = r[1], b[1][0] = r[2], b[1][1] = r[3];
  }
};

/// Calls f(HeadSize<n>{}, T{}) for the tile of a call's heads and their dtype.
template <int kHeadSize>
struct HeadSize {
  static constexpr int kValue = kHeadSize;
};
template <typename F>
void visit_tensor_core_heads(const Heads& q, F f) {
  const auto with_head_size = [&](auto element) {
    if (q.head_size <= 64) return f(HeadSize<64>{}, element);
    if (q.head_size <= 80) return f(HeadSize<80>{}, element);
    if (q.head_size <= 96) return f(HeadSize<96>{}, element);
    if (q.head_size <= 128) return f(HeadSize<128>{}, element);
    f(HeadSize<256>{}, element);
  };
  q.tensor.dtype() == DType::bf16 ? with_head_size(bfloat16{}) : with_head_size(float16{});
}

}  // namespace tessera::cuda::attention
