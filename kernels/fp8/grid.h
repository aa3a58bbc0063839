// The numbers of the two 8-bit formats, for the host and for device code.
//
// Source: the OCP 8-bit Floating Point Specification (Micikevicius et al. 2023).
//
//          mantissa   exponents        largest   smallest above 0
//   e4m3   3 bits     -6 ..  8         448       2^-9
//   e5m2   2 bits    -14 .. 15         57344     2^-16
//
// The largest e4m3 would be 480, but its bits are NaN. e5m2 ends as an IEEE format does.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/fp8/op.h"

#if defined(__CUDACC__)
#define TESSERA_FP8_FUNCTION __host__ __device__ inline
#else
#define TESSERA_FP8_FUNCTION inline
#endif

namespace tessera {

TESSERA_FP8_FUNCTION std::uint32_t bits_of(float value) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(value);
#else
  return std::bit_cast<std::uint32_t>(value);
#endif
}
TESSERA_FP8_FUNCTION float float_of(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

/// 2^exponent, for exponents from -126 to 127.
TESSERA_FP8_FUNCTION float power_of_two(int exponent) {
  return float_of(static_cast<std::uint32_t>(exponent + 127) << 23);
}

/// The numbers that a format has.
struct Fp8Grid {
  int mantissa_bits;
  /// The exponent of the smallest normal number. Below it numbers are multiples of 2^(least - mantissa_bits).
  int least_exponent;
  float largest;

  TESSERA_FP8_FUNCTION static Fp8Grid of(Fp8Format format) {
    return format == Fp8Format::e4m3 ? Fp8Grid{3, -6, 448.0f} : Fp8Grid{2, -14, 57344.0f};
  }

  /// The nearest number, ties to even. Numbers beyond the largest become the largest; infinity and NaN become NaN.
  TESSERA_FP8_FUNCTION float nearest(float x) const {
    const std::uint32_t magnitude = bits_of(x) & 0x7fffffffu;
    const int cut = 23 - mantissa_bits;
    const std::uint32_t odd = (magnitude >> cut) & 1u;
    const std::uint32_t normal = (magnitude + (1u << (cut - 1)) - 1u + odd) >> cut << cut;
    // The float adder rounds to multiples of its last place.
    const float ruler = power_of_two(least_exponent + cut);
    const float subnormal = (float_of(magnitude) + ruler) - ruler;
    float y = float_of(magnitude) < power_of_two(least_exponent) ? subnormal : float_of(normal);
    y = y > largest ? largest : y;
    const std::uint32_t bits = magnitude >= 0x7f800000u ? 0x7fc00000u : bits_of(y);
    return float_of(bits | (bits_of(x) & 0x80000000u));
  }
};

/// The inverse of a larger scale takes the format's smallest numbers near bf16's own.
inline constexpr int kLargestScaleExponent = 100;

/// The largest power of two that takes `largest` to at most `limit`, both above 0 and finite.
TESSERA_FP8_FUNCTION float scale_for(float largest, float limit) {
  const int exponent =
      static_cast<int>(bits_of(limit) >> 23) - static_cast<int>(bits_of(largest) >> 23);
  const float scale =
      power_of_two(exponent < kLargestScaleExponent ? exponent : kLargestScaleExponent);
  return largest * scale > limit ? 0.5f * scale : scale;
}

/// The history of tensors: [steps, count], the latest step first.
struct Fp8History {
  float* largest;
  std::int64_t steps, count;

  /// A step of tensor i.
  TESSERA_FP8_FUNCTION void enter(std::int64_t i, float now) const {
    if ((bits_of(now) & 0x7fffffffu) >= 0x7f800000u) return;
    for (std::int64_t at = (steps - 1) * count + i; at >= count; at -= count) {
      largest[at] = largest[at - count];
    }
    largest[i] = now;
  }
  TESSERA_FP8_FUNCTION float scale(std::int64_t i, float limit) const {
    float most = 0.0f;
    for (std::int64_t at = i; at < steps * count; at += count) {
      most = largest[at] > most ? largest[at] : most;
    }
    return most > 0.0f ? scale_for(most, limit) : 0.0f;
  }
};

}  // namespace tessera
