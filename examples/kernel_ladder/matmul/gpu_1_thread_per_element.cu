// GPU rung 1, a thread per element: each thread runs the inner loop of the CPU's first rung.
#include "examples/kernel_ladder/matmul/gpu_rungs.h"
#include "kernels/cuda/launch.h"

namespace tessera::kernel_ladder::matmul {
namespace {

// The 32 lanes of a warp have neighbouring columns of one row of c.
constexpr int kLanes = 32, kRows = 8;

__global__ void __launch_bounds__(kLanes* kRows) matmul_kernel(Product<float> p) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.y) * kRows + threadIdx.y;
  const std::int64_t j = static_cast<std::int64_t>(blockIdx.x) * kLanes + threadIdx.x;
  if (i >= p.M || j >= p.N) return;
  float sum = 0.0f;
  for (std::int64_t k = 0; k < p.K; ++k) sum = fmaf(p.a[i * p.K + k], p.b[k * p.N + j], sum);
  p.c[i * p.N + j] = sum;
}

}  // namespace

void thread_per_element(const Product<float>& p) {
  const dim3 grid(gpu::blocks_for(p.N, kLanes), gpu::blocks_for(p.M, kRows));
  gpu::launch(matmul_kernel, grid, dim3(kLanes, kRows), 0, gpu::stream(), p);
}

}  // namespace tessera::kernel_ladder::matmul
