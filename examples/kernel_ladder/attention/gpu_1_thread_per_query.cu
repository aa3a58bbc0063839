// GPU rung 1, a thread per query: each thread runs the loops of the CPU's first rung.
#include "examples/kernel_ladder/attention/gpu_rungs.h"
#include "kernels/cuda/launch.h"

namespace tessera::kernel_ladder::attention {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads) attention_kernel(Attention p, std::int64_t head) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= p.T) return;
  const float *const q = p.q + head + i * p.D, *const k = p.k + head, *const v = p.v + head;
  float *const o = p.o + head + i * p.D, *const row = p.scores + i * p.T;
  float maximum = -INFINITY, sum = 0.0f;
  for (std::int64_t j = 0; j < p.T; ++j) {
    float score = 0.0f;
    for (std::int64_t d = 0; d < p.D; ++d) score += q[d] * k[j * p.D + d];
    const bool hidden = j > i;
    score = hidden ? -INFINITY : p.scale * score;
    maximum = fmaxf(maximum, score);
    row[j] = score;
  }
  for (std::int64_t j = 0; j < p.T; ++j) {
    const float weight = expf(row[j] - maximum);
    sum += weight;
    row[j] = weight;
  }
  for (std::int64_t d = 0; d < p.D; ++d) {
    float output = 0.0f;
    for (std::int64_t j = 0; j < p.T; ++j) output += row[j] * v[j * p.D + d];
    o[d] = output / sum;
  }
}

}  // namespace

void thread_per_query(const Attention& p) {
  for (std::int64_t h = 0; h < p.H; ++h) {  // one after another: they share the scores' memory
    gpu::launch(attention_kernel, dim3(gpu::blocks_for(p.T, kThreads)), dim3(kThreads), 0,
                gpu::stream(), p, h * p.T * p.D);
  }
}

}  // namespace tessera::kernel_ladder::attention
