// The tensor-core kernel of grouped products: 128 x 128 tiles of c, 64 deep.
//
//   8 warps in 2 rows of 4, each with 64 x 32 elements of c: 4 x 4 products of mma.sync
//   a tile of a and of b: 16 KB each, twice, so that the next is copied while this one is read
//
// An operand whose depth is contiguous is stored as 128 rows of 8 chunks of 16 bytes, the other as 64
// rows (one per depth) of 16 chunks. Chunk c of row r lies at c ^ (r % 8), so that the eight rows
// that ldmatrix reads at a time cover all banks (kernels/attention/cuda/tiles.h has a drawing). Each
// byte of a is read once per 128 columns of c, and each of b once per 128 rows.
#pragma once

#include "kernels/cuda/numeric.h"
#include "kernels/cuda/tensor_core.h"
#include "kernels/grouped_matmul/groups.h"

namespace tessera::cuda::groups {

inline constexpr int kTileSide = 128;
inline constexpr int kTileDepth = 64;
inline constexpr int kTileElements = kTileSide * kTileDepth;
inline constexpr std::size_t kTileBytes = 4 * 2 * kTileElements;  // two operands, twice
inline constexpr int kWarpRows = 64, kWarpColumns = 32;
inline constexpr int kM = kWarpRows / 16, kN = kWarpColumns / 8;

/// An operand's tile in shared memory.
template <typename T, bool kDepthContiguous>
struct OperandTile {
  static constexpr int kRows = kDepthContiguous ? kTileSide : kTileDepth;
  static constexpr int kChunks = kTileElements / kRows / 8;
  T* data;

  __device__ T* at(int row, int chunk) const {
    return data + (row * kChunks + (chunk ^ (row & 7))) * 8;
  }

  /// Starts copies of the tile that begins at (kept, depth); 0 outside the operand. A thread copies
  /// the same chunk of every kStep-th row.
  __device__ void load(const Operand<T>& from, std::int64_t kept, std::int64_t kept_end,
                       std::int64_t depth, std::int64_t depth_end) const {
    constexpr int kStep = gpu::kThreads / kChunks;
    const int thread = static_cast<int>(gpu::unhoisted(threadIdx.x));
    const int first = thread / kChunks, chunk = thread % kChunks;
    const std::int64_t row = (kDepthContiguous ? kept : depth) + first;
    const std::int64_t column = (kDepthContiguous ? depth : kept) + chunk * 8;
    const bool has_column = column < (kDepthContiguous ? depth_end : kept_end);
    const auto rows = static_cast<int>((kDepthContiguous ? kept_end : depth_end) - row);
    const T* source = from.first + row * from.stride + column;
#pragma unroll
    for (int i = 0; i < kRows; i += kStep) {
      const bool inside = has_column && i < rows;
      gpu::copy_async(at(first + i, chunk), inside ? source : from.first, inside ? 16 : 0);
      source += kStep * from.stride;
    }
  }

  /// 16 kept indices from `kept` on by 16 depths from `depth` on, as a left operand.
  __device__ void read_left(unsigned (&a)[4], int kept, int depth) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if constexpr (kDepthContiguous) {
      gpu::load_matrices<false>(a, at(kept + lane % 16, depth / 8 + lane / 16));
    } else {
      gpu::load_matrices<true>(a, at(depth + lane / 16 * 8 + lane % 8, kept / 8 + lane / 8 % 2));
    }
  }

  /// The same as two right operands of 8 kept indices.
  __device__ void read_right(unsigned (&b)[2][2], int kept, int depth) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    unsigned r[4];
    if constexpr (kDepthContiguous) {
      gpu::load_matrices<false>(r, at(kept + lane / 16 * 8 + lane % 8, depth / 8 + lane / 8 % 2));
    } else {
      gpu::load_matrices<true>(r, at(depth + lane % 16, kept / 8 + lane / 16));
    }
    b[0][0] = r[0], b[0][1] = r[1], b[1][0] = r[2], b[1][1] = r[3];
  }
};

/// Adds the products of the tiles to the warp's sums.
template <typename T, typename Left, typename Right>
__device__ void multiply_tiles(float (&sum)[kM][kN][4], const Left& left, const Right& right,
                               int row, int column) {
#pragma unroll
  for (int depth = 0; depth < kTileDepth; depth += 16) {
    unsigned a[kM][4], b[kN / 2][2][2];
#pragma unroll
    for (int m = 0; m < kM; ++m) left.read_left(a[m], row + 16 * m, depth);
#pragma unroll
    for (int n = 0; n < kN / 2; ++n) right.read_right(b[n], column + 16 * n, depth);
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        gpu::multiply_accumulate<T>(sum[m][n], a[m], b[n / 2][n % 2]);
      }
    }
  }
}

/// Writes two neighbours of a row, or adds them to it.
template <typename U>
__device__ void store_pair(U* to, float first, float second, bool accumulate) {
  if (accumulate) first += gpu::load(to[0]), second += gpu::load(to[1]);
  if constexpr (sizeof(U) == 2) {
    *reinterpret_cast<unsigned*>(to) = gpu::pack<U>(first, second);
  } else {
    *reinterpret_cast<float2*>(to) = float2{first, second};
  }
}

template <typename T, typename U, bool kLeftDepth, bool kRightDepth>
__global__ void __launch_bounds__(gpu::kThreads, 2) tensor_core_kernel(Problem<T, U> problem) {
  gpu::SharedMemory memory;
  T* const tiles = memory.take<T>(4 * kTileElements, 128);
  ExpertProduct<T, U> p;
  if (!problem.find(p, kTileSide)) return;
  const auto left = [=](int step) {
    return OperandTile<T, kLeftDepth>{tiles + step % 2 * kTileElements};
  };
  const auto right = [=](int step) {
    return OperandTile<T, kRightDepth>{tiles + (2 + step % 2) * kTileElements};
  };
  const auto load = [&](int step) {
    const std::int64_t depth = static_cast<std::int64_t>(step) * kTileDepth;
    left(step).load(p.a, p.row, p.rows, depth, p.depth);
    right(step).load(p.b, p.column, p.columns, depth, p.depth);
    gpu::copy_async_commit();
  };

  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int row = warp / 4 * kWarpRows, column = warp % 4 * kWarpColumns;
  const int steps = static_cast<int>((p.depth + kTileDepth - 1) / kTileDepth);
  float sum[kM][kN][4] = {};
  if (steps > 0) load(0);
  for (int step = 0; step < steps; ++step) {
    gpu::copy_async_wait<0>();
    __syncthreads();  // all copies have arrived, and no warp reads the last tiles any more
    if (step + 1 < steps) load(step + 1);
    multiply_tiles<T>(sum, left(step), right(step), row, column);
  }
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::int64_t i = p.row + row + 16 * m + 8 * half + lane / 4;
        const std::int64_t j = p.column + column + 8 * n + lane % 4 * 2;
        if (i >= p.rows || j >= p.columns) continue;
        store_pair(p.c + i * p.columns + j, sum[m][n][2 * half], sum[m][n][2 * half + 1],
                   problem.accumulate);
      }
    }
  }
}

/// Rows of all operands and of c are aligned to 16 bytes.
template <typename T, typename U>
void multiply_on_tensor_cores(const Problem<T, U>& problem) {
  const auto launch = [&](auto kernel) {
    gpu::launch(kernel, problem.grid(kTileSide), dim3(gpu::kThreads), kTileBytes, gpu::stream(),
                problem);
  };
  if (problem.of_weights) return launch(tensor_core_kernel<T, U, false, false>);
  launch(problem.transpose_b ? tensor_core_kernel<T, U, true, true>
                             : tensor_core_kernel<T, U, true, false>);
}

}  // namespace tessera::cuda::groups
