// GPU rung 1, a thread per row: each thread runs the loops of the CPU's second rung.
#include "examples/kernel_ladder/norm/gpu_rungs.h"
#include "kernels/cuda/launch.h"

namespace tessera::kernel_ladder::norm {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) norm_kernel(Norm p) {
  const std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (n >= p.N) return;
  const float* const x = p.x + n * p.C;
  float* const y = p.y + n * p.C;
  float squares = 0.0f;
  for (std::int64_t c = 0; c < p.C; ++c) squares += x[c] * x[c];
  const float rstd = 1.0f / sqrtf(squares / static_cast<float>(p.C) + p.epsilon);
  p.rstd[n] = rstd;
  for (std::int64_t c = 0; c < p.C; ++c) y[c] = x[c] * rstd * p.weight[c];
}

}  // namespace

void thread_per_row(const Norm& p) {
  gpu::launch(norm_kernel, dim3(gpu::blocks_for(p.N, kThreads)), dim3(kThreads), 0, gpu::stream(),
              p);
}

}  // namespace tessera::kernel_ladder::norm
