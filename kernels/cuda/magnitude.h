// The largest magnitude of many values, on a GPU.
#pragma once

#include "kernels/cuda/reduce.h"

namespace tessera::gpu {

/// The bits of |x|. They are ordered as the values are, with NaN above infinity.
__device__ inline int bits_of_magnitude(float x) {
  return static_cast<int>(__float_as_uint(x) & 0x7fffffffu);
}

/// Raises `largest` to the largest of the warp's values, which have these bits.
__device__ inline void raise(float* largest, int bits) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    bits = max(bits, __shfl_xor_sync(kFullWarp, bits, distance));
  }
  if (threadIdx.x % 32 == 0) atomicMax(reinterpret_cast<int*>(largest), bits);
}

}  // namespace tessera::gpu
