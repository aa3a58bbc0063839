// The two 16-bit floating-point formats: stored as bits, computed as float.
//
// Conversion from float rounds to nearest, ties to even. NaN stays NaN (quiet); values beyond the
// largest finite value become infinity. The code is branch-free where it matters, so that loops of
// conversions vectorize.
#pragma once

#include <bit>
#include <cstdint>

namespace tessera {

/// bfloat16: the upper half of a float (8 exponent bits, 7 mantissa bits).
struct bfloat16 {
  std::uint16_t bits = 0;

  bfloat16() = default;
  explicit bfloat16(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    const std::uint32_t quiet_nan = (u >> 16) | 0x40u;
    bits = static_cast<std::uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
  }
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

/// IEEE 754 binary16 (5 exponent bits, 10 mantissa bits), subnormals included.
struct float16 {
  std::uint16_t bits = 0;

  float16() = default;
  explicit float16(float value) : bits(from_float(value)) {}
  explicit operator float() const { return to_float(bits); }

 private:
  static std::uint16_t from_float(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (u >> 16) & 0x8000u;
    const std::uint32_t magnitude = u & 0x7fffffffu;
    // Below the smallest normal number, 2^-14: adding 0.5 makes the float adder round to multiples
    // of 2^-24.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u;
    // Above: change the exponent's bias from 127 to 15 and round 13 bits away.
    const std::uint32_t odd = (magnitude >> 13) & 1u;
    const std::uint32_t normal = (magnitude - 0x38000000u + 0xfffu + odd) >> 13;
    std::uint32_t bits = magnitude < 0x38800000u ? subnormal : normal;
    bits = magnitude >= 0x477ff000u ? 0x7c00u : bits;  // 65520 is the first to round to infinity
    bits = magnitude > 0x7f800000u ? 0x7e00u : bits;   // NaN
    return static_cast<std::uint16_t>(sign | bits);
  }

  static float to_float(std::uint16_t half) {
    // Place the 15 value bits at the float's exponent and rescale by 2^112: exact for normal and
    // subnormal values alike; infinity and NaN then get their exponent filled.
    const std::uint32_t shifted = static_cast<std::uint32_t>(half & 0x7fffu) << 13;
    const float scaled = std::bit_cast<float>(shifted) * 0x1p112f;
    std::uint32_t u = std::bit_cast<std::uint32_t>(scaled);
    u |= shifted >= 0x0f800000u ? 0x7f800000u : 0u;
    u |= static_cast<std::uint32_t>(half & 0x8000u) << 16;
    return std::bit_cast<float>(u);
  }
};

}  // namespace tessera
