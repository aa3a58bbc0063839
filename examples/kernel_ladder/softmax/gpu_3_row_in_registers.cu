// GPU rung 3, a row in registers: each element is read once, and has one exponential.
#include "examples/kernel_ladder/softmax/gpu_rungs.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"

namespace tessera::kernel_ladder::softmax {
namespace {

constexpr int kThreads = 256, kLanes = 32, kRows = kThreads / kLanes;

// Vectors of 4 columns that a lane holds: 8 x 32 x 4 = 1,024 columns of a row.
constexpr int kVectors = 8;

__global__ void __launch_bounds__(kThreads) softmax_kernel(Softmax p) {
  const std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * kRows + threadIdx.x / kLanes;
  const int lane = threadIdx.x % kLanes;
  if (n >= p.N) return;
  const auto* const x = reinterpret_cast<const float4*>(p.x + n * p.C);
  auto* const y = reinterpret_cast<float4*>(p.y + n * p.C);
  float4 row[kVectors];
  float own = -INFINITY;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int c = i * kLanes + lane;
    if (c >= p.C / 4) break;
    row[i] = x[c];
    own = fmaxf(own, fmaxf(fmaxf(row[i].x, row[i].y), fmaxf(row[i].z, row[i].w)));
  }
  const float maximum = gpu::warp_reduce<gpu::Maximum>(own);
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (i * kLanes + lane >= p.C / 4) break;
    row[i] = make_float4(expf(row[i].x - maximum), expf(row[i].y - maximum),
                         expf(row[i].z - maximum), expf(row[i].w - maximum));
    sum += row[i].x + row[i].y + row[i].z + row[i].w;
  }
  sum = gpu::warp_reduce<gpu::Sum>(sum);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int c = i * kLanes + lane;
    if (c >= p.C / 4) break;
    y[c] = make_float4(row[i].x / sum, row[i].y / sum, row[i].z / sum, row[i].w / sum);
  }
  if (lane == 0) p.loss[n] = maximum - p.x[n * p.C + p.target[n]] + logf(sum);
}

}  // namespace

void row_in_registers(const Softmax& p) {
  gpu::launch(softmax_kernel, dim3(gpu::blocks_for(p.N, kRows)), dim3(kThreads), 0, gpu::stream(),
              p);
}

}  // namespace tessera::kernel_ladder::softmax
