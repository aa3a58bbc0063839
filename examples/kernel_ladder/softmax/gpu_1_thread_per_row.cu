// GPU rung 1, a thread per row: each thread runs the loops of the CPU's second rung.
#include "examples/kernel_ladder/softmax/gpu_rungs.h"
#include "kernels/cuda/launch.h"

namespace tessera::kernel_ladder::softmax {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) softmax_kernel(Softmax p) {
  const std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (n >= p.N) return;
  const float* const x = p.x + n * p.C;
  float* const y = p.y + n * p.C;
  float maximum = -INFINITY, sum = 0.0f;
  for (std::int64_t c = 0; c < p.C; ++c) {
    const float value = x[c], risen = fmaxf(maximum, value);
    sum = sum * expf(maximum - risen) + expf(value - risen);
    maximum = risen;
  }
  for (std::int64_t c = 0; c < p.C; ++c) y[c] = expf(x[c] - maximum) / sum;
  p.loss[n] = maximum - x[p.target[n]] + logf(sum);
}

}  // namespace

void thread_per_row(const Softmax& p) {
  gpu::launch(softmax_kernel, dim3(gpu::blocks_for(p.N, kThreads)), dim3(kThreads), 0,
              gpu::stream(), p);
}

}  // namespace tessera::kernel_ladder::softmax
