// Conversion between f32, bf16 and f16 in device code.
//
// Every value gets the CPU's bits. The hardware converts every NaN to the same NaN; runtime/half.h
// keeps the sign and the upper bits. So NaNs are converted by hand: 3 instructions, which the time
// for memory hides.
#pragma once

#include "kernels/cuda/numeric.h"

namespace tessera::gpu {

__device__ inline float widen(float value) {
  return value;
}
__device__ inline float widen(bfloat16 value) {
  return gpu::load(value);
}
__device__ inline float widen(float16 value) {
  const unsigned magnitude = value.bits & 0x7fffu, sign = value.bits & 0x8000u;
  if (magnitude > 0x7c00u) return __uint_as_float(sign << 16 | 0x7f800000u | magnitude << 13);
  return gpu::load(value);
}

__device__ inline void narrow(float& to, float value) {
  to = value;
}
__device__ inline void narrow(bfloat16& to, float value) {
  const unsigned bits = __float_as_uint(value);
  gpu::store(to, value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) to.bits = static_cast<std::uint16_t>(bits >> 16 | 0x40u);
}
__device__ inline void narrow(float16& to, float value) {
  const unsigned bits = __float_as_uint(value);
  gpu::store(to, value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    to.bits = static_cast<std::uint16_t>((bits >> 16 & 0x8000u) | 0x7e00u);
  }
}

}  // namespace tessera::gpu
