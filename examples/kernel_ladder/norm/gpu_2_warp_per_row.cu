// GPU rung 2, a warp per row: neighbouring lanes read neighbouring columns.
#include "examples/kernel_ladder/norm/gpu_rungs.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"

namespace tessera::kernel_ladder::norm {
namespace {

constexpr int kThreads = 256, kLanes = 32, kRows = kThreads / kLanes;

__global__ void __launch_bounds__(kThreads) norm_kernel(Norm p) {
  const std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * kRows + threadIdx.x / kLanes;
  const int lane = threadIdx.x % kLanes;
  if (n >= p.N) return;
  const float* const x = p.x + n * p.C;
  float* const y = p.y + n * p.C;
  float squares = 0.0f;
  for (std::int64_t c = lane; c < p.C; c += kLanes) squares += x[c] * x[c];
  squares = gpu::warp_reduce<gpu::Sum>(squares);
  const float rstd = 1.0f / sqrtf(squares / static_cast<float>(p.C) + p.epsilon);
  if (lane == 0) p.rstd[n] = rstd;
  for (std::int64_t c = lane; c < p.C; c += kLanes) y[c] = x[c] * rstd * p.weight[c];
}

}  // namespace

void warp_per_row(const Norm& p) {
  gpu::launch(norm_kernel, dim3(gpu::blocks_for(p.N, kRows)), dim3(kThreads), 0, gpu::stream(), p);
}

}  // namespace tessera::kernel_ladder::norm
