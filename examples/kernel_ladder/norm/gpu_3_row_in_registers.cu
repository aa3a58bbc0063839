// GPU rung 3, a row in registers: vectors of 16 bytes, and each element is read once.
#include "examples/kernel_ladder/norm/gpu_rungs.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"

namespace tessera::kernel_ladder::norm {
namespace {

constexpr int kThreads = 256, kLanes = 32, kRows = kThreads / kLanes;

// Vectors of 4 columns that a lane holds: 8 x 32 x 4 = 1,024 columns of a row.
constexpr int kVectors = 8;

__global__ void __launch_bounds__(kThreads) norm_kernel(Norm p) {
  const std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * kRows + threadIdx.x / kLanes;
  const int lane = threadIdx.x % kLanes;
  if (n >= p.N) return;
  const auto* const x = reinterpret_cast<const float4*>(p.x + n * p.C);
  const auto* const weight = reinterpret_cast<const float4*>(p.weight);
  auto* const y = reinterpret_cast<float4*>(p.y + n * p.C);
  float4 row[kVectors];
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int c = i * kLanes + lane;
    if (c >= p.C / 4) break;
    row[i] = x[c];
    squares +=
        row[i].x * row[i].x + row[i].y * row[i].y + row[i].z * row[i].z + row[i].w * row[i].w;
  }
  squares = gpu::warp_reduce<gpu::Sum>(squares);
  const float rstd = 1.0f / sqrtf(squares / static_cast<float>(p.C) + p.epsilon);
  if (lane == 0) p.rstd[n] = rstd;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int c = i * kLanes + lane;
    if (c >= p.C / 4) break;
    const float4 w = weight[c];
    y[c] = make_float4(row[i].x * rstd * w.x, row[i].y * rstd * w.y, row[i].z * rstd * w.z,
                       row[i].w * rstd * w.w);
  }
}

}  // namespace

void row_in_registers(const Norm& p) {
  gpu::launch(norm_kernel, dim3(gpu::blocks_for(p.N, kRows)), dim3(kThreads), 0, gpu::stream(), p);
}

}  // namespace tessera::kernel_ladder::norm
