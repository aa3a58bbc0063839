// GPU rung 2, shared tiles: a block copies tiles of a and b to shared memory, and uses each element 32
// times from there.
#include "examples/kernel_ladder/matmul/gpu_rungs.h"
#include "kernels/cuda/launch.h"

namespace tessera::kernel_ladder::matmul {
namespace {

// A block has a tile of c, kSide x kSide. A thread has kRows elements of one column, kStep rows apart.
constexpr int kSide = 32, kStep = 8, kRows = kSide / kStep;

__global__ void __launch_bounds__(kSide* kStep) matmul_kernel(Product<float> p) {
  TESSERA_SHARED(float, a, [kSide][kSide]);
  TESSERA_SHARED(float, b, [kSide][kSide]);
  const std::int64_t i0 = static_cast<std::int64_t>(blockIdx.y) * kSide;
  const std::int64_t j0 = static_cast<std::int64_t>(blockIdx.x) * kSide;
  const int column = threadIdx.x;
  float sum[kRows] = {};
  for (std::int64_t k0 = 0; k0 < p.K; k0 += kSide) {
    // Zeros lie beyond the edges of the matrices.
    for (int row = threadIdx.y; row < kSide; row += kStep) {
      const bool in_a = i0 + row < p.M && k0 + column < p.K;
      const bool in_b = k0 + row < p.K && j0 + column < p.N;
      a[row][column] = in_a ? p.a[(i0 + row) * p.K + k0 + column] : 0.0f;
      b[row][column] = in_b ? p.b[(k0 + row) * p.N + j0 + column] : 0.0f;
    }
    __syncthreads();
    for (int k = 0; k < kSide; ++k) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        sum[r] = fmaf(a[threadIdx.y + r * kStep][k], b[k][column], sum[r]);
      }
    }
    __syncthreads();  // before the next tiles overwrite these
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const std::int64_t i = i0 + threadIdx.y + r * kStep, j = j0 + column;
    if (i < p.M && j < p.N) p.c[i * p.N + j] = sum[r];
  }
}

}  // namespace

void shared_tiles(const Product<float>& p) {
  const dim3 grid(gpu::blocks_for(p.N, kSide), gpu::blocks_for(p.M, kSide));
  gpu::launch(matmul_kernel, grid, dim3(kSide, kStep), 0, gpu::stream(), p);
}

}  // namespace tessera::kernel_ladder::matmul
