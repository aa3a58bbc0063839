// The largest magnitude of many values, on a GPU.
#pragma once

#include "kernels/cuda/reduce.h"

namespace tessera::gpu {

/// The bits of |x|. They are ordered as the values are, with NaN above infinity.
__device__ inline int bits_of_magnitude(float x) {
  return static_cast<int>(__float_as_uint(x) & 0x7fffffffu);
}

/// The largest of a warp's integers, in every lane.
__device__ inline int warp_most(int value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value = max(value, __shfl_xor_sync(kFullWarp, value, distance));
  }
  return value;
}

/// Raises `largest` to the largest of the warp's values, which have these bits.
__device__ inline void raise(float* largest, int bits) {
  bits = warp_most(bits);
  if (threadIdx.x % 32 == 0) atomicMax(reinterpret_cast<int*>(largest), bits);
}

}  // namespace tessera::gpu
