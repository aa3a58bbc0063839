// GPU rung 2, a warp per row: each lane has a maximum and a sum, and the lanes combine them.
#include "examples/kernel_ladder/softmax/gpu_rungs.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"

namespace tessera::kernel_ladder::softmax {
namespace {

constexpr int kThreads = 256, kLanes = 32, kRows = kThreads / kLanes;

__global__ void __launch_bounds__(kThreads) softmax_kernel(Softmax p) {
  const std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * kRows + threadIdx.x / kLanes;
  const int lane = threadIdx.x % kLanes;
  if (n >= p.N) return;
  const float* const x = p.x + n * p.C;
  float* const y = p.y + n * p.C;
  float own = -INFINITY, sum = 0.0f;
  for (std::int64_t c = lane; c < p.C; c += kLanes) {
    const float value = x[c], risen = fmaxf(own, value);
    sum = sum * expf(own - risen) + expf(value - risen);
    own = risen;
  }
  const float maximum = gpu::warp_reduce<gpu::Maximum>(own);
  sum = gpu::warp_reduce<gpu::Sum>(sum * expf(own - maximum));
  for (std::int64_t c = lane; c < p.C; c += kLanes) y[c] = expf(x[c] - maximum) / sum;
  if (lane == 0) p.loss[n] = maximum - x[p.target[n]] + logf(sum);
}

}  // namespace

void warp_per_row(const Softmax& p) {
  gpu::launch(softmax_kernel, dim3(gpu::blocks_for(p.N, kRows)), dim3(kThreads), 0, gpu::stream(),
              p);
}

}  // namespace tessera::kernel_ladder::softmax
