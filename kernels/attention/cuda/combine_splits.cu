// Combines the splits of a query's keys. Traffic: 4 d + 8 bytes per split and query head.
#include "kernels/attention/cuda/splits.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"

namespace tessera::cuda::attention {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * 32;

/// A thread block combines the splits of 32 channels of a query: each warp every kWarps-th split.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    combine_kernel(const ForwardArguments<T> x, const Splits splits) {
  TESSERA_SHARED(float, outputs, [kWarps][32]);
  TESSERA_SHARED(float, sums, [kWarps]);
  const Extents& n = x.extents;
  const int tiles = (n.head_size + 31) / 32, tile = static_cast<int>(blockIdx.x) % tiles;
  const int all_head = static_cast<int>(blockIdx.x) / tiles;
  const int batch = all_head / n.heads, head = all_head % n.heads;
  const int count = (n.keys - first_key_of(x, batch) + kSplitKeys - 1) / kSplitKeys;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int channel = 32 * tile + lane;
  const float2* const softmaxes = splits.softmaxes + splits.place(all_head, 0);

  float largest = -INFINITY;
  for (int i = thread; i < count; i += kThreads) largest = fmaxf(largest, softmaxes[i].x);
  largest = gpu::block_reduce<gpu::Maximum>(largest);
  float output = 0.0f, sum = 0.0f;
#pragma unroll 4
  for (int i = warp; i < count; i += kWarps) {
    const float factor = exp2f(softmaxes[i].x - largest);
    sum = fmaf(factor, softmaxes[i].y, sum);
    if (channel >= n.head_size) continue;
    output =
        fmaf(factor, splits.outputs[splits.place(all_head, i) * n.head_size + channel], output);
  }
  outputs[warp][lane] = output;
  if (lane == 0) sums[warp] = sum;
  __syncthreads();
  if (warp > 0) return;
#pragma unroll
  for (int other = 1; other < kWarps; ++other) {
    output += outputs[other][lane];
    sum += sums[other];
  }
  if (channel < n.head_size) gpu::store(x.o.rows(batch, head)[0][channel], output / sum);
  if (thread == 0 && tile == 0) x.logsumexp[all_head] = (largest + log2f(sum)) * kLn2;
}

}  // namespace

void combine_splits(const ForwardCall& call, const Splits& splits) {
  const std::int64_t blocks = call.q.batch * call.q.heads * ceil_div(call.q.head_size, 32);
  gpu::visit(call.q.tensor.dtype(), [&](auto element) {
    using T = decltype(element);
    gpu::launch(combine_kernel<T>, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0,
                gpu::stream(), ForwardArguments<T>(call), splits);
  });
}

}  // namespace tessera::cuda::attention
