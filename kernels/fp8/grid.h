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

/// A format: a number is a sign, an exponent and a mantissa, from the highest bit to the lowest.
struct Fp8Grid {
  int mantissa_bits;
  /// The exponent of the smallest normal number. Below it numbers are multiples of 2^(least - mantissa_bits).
  int least_exponent;
  float largest;
  std::uint32_t code_of_largest;

  TESSERA_FP8_FUNCTION static Fp8Grid of(DType format) {
    return format == DType::e4m3 ? Fp8Grid{3, -6, 448.0f, 0x7e} : Fp8Grid{2, -14, 57344.0f, 0x7b};
  }

  /// The nearest number, ties to even. Numbers beyond the largest become the largest; infinity and NaN become NaN.
  TESSERA_FP8_FUNCTION std::uint8_t nearest(float x) const {
    const std::uint32_t magnitude = bits_of(x) & 0x7fffffffu, sign = bits_of(x) >> 31;
    const std::uint32_t odd = (magnitude >> cut()) & 1u;
    const std::uint32_t normal =
        ((magnitude + (1u << (cut() - 1)) - 1u + odd) >> cut()) - exponent_shift();
    // The float adder rounds to multiples of its last place.
    const std::uint32_t subnormal = bits_of(float_of(magnitude) + ruler()) - bits_of(ruler());
    std::uint32_t code = float_of(magnitude) < power_of_two(least_exponent) ? subnormal : normal;
    code = code > code_of_largest ? code_of_largest : code;
    code = magnitude >= 0x7f800000u ? kNan : code;
    return static_cast<std::uint8_t>(sign << 7 | code);
  }

  /// Codes behind that of the largest number are NaN here: nearest() makes no infinity.
  TESSERA_FP8_FUNCTION float value_of(std::uint8_t code) const {
    const std::uint32_t magnitude = code & 0x7fu, sign = code >> 7;
    const float subnormal = float_of(bits_of(ruler()) + magnitude) - ruler();
    float y = magnitude >> mantissa_bits == 0 ? subnormal
                                              : float_of((magnitude + exponent_shift()) << cut());
    y = magnitude > code_of_largest ? float_of(0x7fc00000u) : y;
    return float_of(bits_of(y) | sign << 31);
  }

 private:
  static constexpr std::uint32_t kNan = 0x7f;

  /// Mantissa bits of a float that the format lacks.
  TESSERA_FP8_FUNCTION int cut() const { return 23 - mantissa_bits; }
  /// From the format's exponents to a float's.
  TESSERA_FP8_FUNCTION std::uint32_t exponent_shift() const {
    return static_cast<std::uint32_t>(126 + least_exponent) << mantissa_bits;
  }
  /// Its last place is the distance of numbers below the smallest normal one.
  TESSERA_FP8_FUNCTION float ruler() const { return power_of_two(least_exponent + cut()); }
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

/// The bits of |x|, and 0 for infinity and NaN: they set no scale. The bits are ordered as magnitudes are.
TESSERA_FP8_FUNCTION std::int32_t bits_for_scale(float x) {
  const std::uint32_t magnitude = bits_of(x) & 0x7fffffffu;
  return magnitude < 0x7f800000u ? static_cast<std::int32_t>(magnitude) : 0;
}
/// The scale of a block. `most`: its largest bits_for_scale().
TESSERA_FP8_FUNCTION float scale_of_block(std::int32_t most, float limit) {
  return most == 0 ? 1.0f : scale_for(float_of(static_cast<std::uint32_t>(most)), limit);
}

/// Where the inverse scales of a matrix are (fp8_scales_shape()).
struct Fp8ScalePlaces {
  int row_shift, column_shift;
  std::int64_t row_stride, column_stride;

  TESSERA_FP8_FUNCTION static Fp8ScalePlaces of(Fp8Blocks blocks, std::int64_t rows,
                                                std::int64_t depth) {
    const std::int64_t across = (depth + kFp8Block - 1) / kFp8Block;
    if (blocks == Fp8Blocks::vectors) return {0, 7, 1, rows};
    return {7, 7, (across + 3) / 4 * 4, 1};
  }
  /// Those of the transposed matrix.
  TESSERA_FP8_FUNCTION Fp8ScalePlaces transposed() const {
    return {column_shift, row_shift, column_stride, row_stride};
  }
  TESSERA_FP8_FUNCTION std::int64_t at(std::int64_t row, std::int64_t column) const {
    return (row >> row_shift) * row_stride + (column >> column_shift) * column_stride;
  }
};
static_assert(kFp8Block == 1 << 7);

/// The history of tensors: [steps, count], the latest step first.
struct Fp8History {
  float* largest;
  std::int64_t steps, count;

  /// A step of tensor i.
  TESSERA_FP8_FUNCTION void enter(std::int64_t i, float now) const {
    if (now == 0.0f || (bits_of(now) & 0x7fffffffu) >= 0x7f800000u) return;
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
    return scale_for(most, limit);
  }
};

}  // namespace tessera
