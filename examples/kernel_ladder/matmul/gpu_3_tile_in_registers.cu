// GPU rung 3, a tile in registers: a thread has 8 x 8 elements of c, and uses each load from shared
// memory several times.
#include "examples/kernel_ladder/matmul/gpu_rungs.h"
#include "kernels/cuda/launch.h"

namespace tessera::kernel_ladder::matmul {
namespace {

// A block has a tile of c, kSide x kSide, and takes kDepth of k at a time. Its threads are a grid of
// 16 x 16. A thread has rows and columns in vectors of 4, kSide / 2 apart: 16 lanes then read 256 bytes
// without gaps, from all banks of shared memory.
constexpr int kSide = 128, kDepth = 8, kThreads = 256, kTile = 8, kVector = 4;

// The tile of a is stored with k first. Four elements more per row put the rows that a warp writes at
// the same time into other banks.
constexpr int kPitch = kSide + 4;

__device__ float4 load(const float* from, bool inside) {
  return inside ? *reinterpret_cast<const float4*>(from) : make_float4(0, 0, 0, 0);
}

/// Row or column `i` of a thread's tile in the block's tile. `first` is that of element 0.
__device__ int place(int first, int i) {
  return first + i / kVector * (kSide / 2) + i % kVector;
}

// Two blocks per multiprocessor: one computes while the other waits for its tiles.
__global__ void __launch_bounds__(kThreads, 2) matmul_kernel(Product<float> p) {
  TESSERA_SHARED(float4, a_vectors, [kDepth * kPitch / kVector]);
  TESSERA_SHARED(float4, b_vectors, [kDepth * kSide / kVector]);
  auto* const a = reinterpret_cast<float*>(a_vectors);
  const std::int64_t i0 = static_cast<std::int64_t>(blockIdx.y) * kSide;
  const std::int64_t j0 = static_cast<std::int64_t>(blockIdx.x) * kSide;
  const int thread = threadIdx.x;
  // The vectors that the thread copies: along k of a row of a, along j of a row of b.
  const int a_row = thread / 2, a_k = thread % 2 * kVector;
  const int b_k = thread / 32, b_column = thread % 32 * kVector;
  const int first_row = thread / 16 * kVector, first_column = thread % 16 * kVector;
  const float* const of_row = p.a + (i0 + a_row) * p.K + a_k;
  const float* const of_column = p.b + b_k * p.N + j0 + b_column;
  const int K = static_cast<int>(p.K);
  float sum[kTile][kTile] = {};
  for (int k0 = 0; k0 < K; k0 += kDepth) {
    const float4 from_a = load(of_row + k0, i0 + a_row < p.M && k0 + a_k < K);
    a[(a_k + 0) * kPitch + a_row] = from_a.x;
    a[(a_k + 1) * kPitch + a_row] = from_a.y;
    a[(a_k + 2) * kPitch + a_row] = from_a.z;
    a[(a_k + 3) * kPitch + a_row] = from_a.w;
    b_vectors[thread] = load(of_column + k0 * p.N, k0 + b_k < K && j0 + b_column < p.N);
    __syncthreads();
#pragma unroll 4
    for (int k = 0; k < kDepth; ++k) {
      float4 row[2], column[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        row[half] = a_vectors[(k * kPitch + place(first_row, half * kVector)) / kVector];
        column[half] = b_vectors[(k * kSide + place(first_column, half * kVector)) / kVector];
      }
      const float of_a[kTile] = {row[0].x, row[0].y, row[0].z, row[0].w,
                                 row[1].x, row[1].y, row[1].z, row[1].w};
      const float of_b[kTile] = {column[0].x, column[0].y, column[0].z, column[0].w,
                                 column[1].x, column[1].y, column[1].z, column[1].w};
#pragma unroll
      for (int i = 0; i < kTile; ++i) {
#pragma unroll
        for (int j = 0; j < kTile; ++j) sum[i][j] = fmaf(of_a[i], of_b[j], sum[i][j]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kTile; ++i) {
#pragma unroll
    for (int j = 0; j < kTile; j += kVector) {
      const std::int64_t row = i0 + place(first_row, i), column = j0 + place(first_column, j);
      if (row >= p.M || column >= p.N) continue;
      *reinterpret_cast<float4*>(p.c + row * p.N + column) =
          make_float4(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]);
    }
  }
}

}  // namespace

void tile_in_registers(const Product<float>& p) {
  const dim3 grid(gpu::blocks_for(p.N, kSide), gpu::blocks_for(p.M, kSide));
  gpu::launch(matmul_kernel, grid, dim3(kThreads), 0, gpu::stream(), p);
}

}  // namespace tessera::kernel_ladder::matmul
