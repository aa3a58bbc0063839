// Functions of one thread: loads with hints, conversions of bits, arithmetic.
//
// The approximate functions (__expf, rsqrtf, ...) are exact to rounding unless the errors of a GPU
// are switched on (arithmetic.h). Their bounds are those of "CUDA C++ Programming Guide",
// "Intrinsic Functions".
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "runtime/emulation/device/arithmetic.h"

using std::isfinite;
using std::max;
using std::min;

template <typename T>
T __ldg(const T* address) {
  return *address;
}
template <typename T>
T __ldcs(const T* address) {
  return *address;
}
template <typename T>
void __stcs(T* address, T value) {
  *address = value;
}

inline float __expf(float x) {
  const int ulps = 2 + static_cast<int>(std::min(std::fabs(1.173f * x), 128.0f));
  return tessera::emulation::approximated(std::exp(x), x, ulps);
}
inline float __logf(float x) {
  return tessera::emulation::approximated(std::log(x), x, 3);
}
inline float __log2f(float x) {
  return tessera::emulation::approximated(std::log2(x), x, 2);
}
inline float __fdividef(float x, float y) {
  return tessera::emulation::approximated(x / y, x, 2);
}
inline float __frcp_rn(float x) {
  return 1.0f / x;
}
inline float __fsqrt_rn(float x) {
  return std::sqrt(x);
}
// A call of its own, so that the compiler cannot fuse the sum with a product.
[[gnu::noinline]] inline float __fadd_rn(float x, float y) {
  return x + y;
}
inline float __fmaf_rn(float x, float y, float z) {
  return std::fma(x, y, z);
}
inline float rsqrtf(float x) {
  return tessera::emulation::approximated(1.0f / std::sqrt(x), x, 2);
}

inline unsigned __float_as_uint(float x) {
  return std::bit_cast<unsigned>(x);
}
inline float __uint_as_float(unsigned x) {
  return std::bit_cast<float>(x);
}
inline unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>(static_cast<std::uint64_t>(x) * y >> 32);
}
inline int __popc(unsigned x) {
  return std::popcount(x);
}
inline int __ffs(int x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1;
}
inline int __clz(int x) {
  return std::countl_zero(static_cast<unsigned>(x));
}
