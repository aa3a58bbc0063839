// Sums and maxima over a warp and over a block.
//
// The order of additions is fixed, so every run gives the same bits.
#pragma once

#include "kernels/cuda/language.h"

namespace tessera::gpu {

inline constexpr unsigned kFullWarp = 0xffffffffu;

struct Sum {
  static constexpr float kIdentity = 0.0f;
  __device__ static float combine(float a, float b) { return a + b; }
};
struct Maximum {
  static constexpr float kIdentity = -INFINITY;
  __device__ static float combine(float a, float b) { return fmaxf(a, b); }
};

/// The reduction over the warp's 32 lanes, or over `lanes` neighbours (a power of two), in every lane.
/// All lanes of the warp call it.
template <typename Operation>
__device__ float warp_reduce(float value, int lanes = 32) {
#pragma unroll
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    value = Operation::combine(value, __shfl_xor_sync(kFullWarp, value, distance));
  }
  return value;
}

/// The reduction over the block (a multiple of 32 threads), in every thread. All threads of the
/// block call it.
template <typename Operation>
__device__ float block_reduce(float value) {
  TESSERA_SHARED(float, partial, [32]);
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  value = warp_reduce<Operation>(value);
  __syncthreads();  // the readers of an earlier call are done
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  return warp_reduce<Operation>(lane < warps ? partial[lane] : Operation::kIdentity);
}

}  // namespace tessera::gpu
