#include "runtime/half.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

namespace tessera {
namespace {

/// The value of 16 bits by the definition of binary16: (-1)^s 2^(e - 15) (1 + m / 1024).
double half_value(std::uint16_t bits) {
  const double sign = bits & 0x8000u ? -1.0 : 1.0;
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  if (exponent == 31) return mantissa ? std::nan("") : sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

/// `value` rounded to a multiple of 2^k with k = max(exponent - (digits - 1), lowest), ties to
/// even.
double rounded(double value, int digits, int lowest, double beyond_largest) {
  if (value == 0.0 || std::isinf(value)) return value;
  const double unit = std::ldexp(1.0, std::max(std::ilogb(value) - (digits - 1), lowest));
  const double result = std::nearbyint(value / unit) * unit;
  return std::fabs(result) >= beyond_largest ? std::copysign(HUGE_VAL, value) : result;
}

/// Calls f with floats of every exponent, both signs, and mantissas around every rounding boundary.
template <typename F>
void for_many_floats(F f) {
  for (std::uint32_t high = 0; high < 0x10000u; ++high) {
    for (const std::uint32_t low : {0u, 1u, 0x0fffu, 0x1000u, 0x1001u, 0x2fffu, 0x3000u, 0x7fffu,
                                    0x8000u, 0x8001u, 0xf000u, 0xffffu}) {
      const float value = std::bit_cast<float>(high << 16 | low);
      if (!std::isnan(value)) f(value);
    }
  }
}

}  // namespace

TEST_CASE("every float16 has binary16's value and converts back to itself") {
  int wrong = 0;
  for (std::uint32_t i = 0; i < 0x10000u; ++i) {
    float16 half;
    half.bits = static_cast<std::uint16_t>(i);
    const auto value = static_cast<float>(half);
    const double expected = half_value(half.bits);
    if (std::isnan(expected)) {
      wrong += !std::isnan(value) || !std::isnan(static_cast<float>(float16(value)));
    } else {
      wrong += value != expected || std::signbit(value) != std::signbit(expected);
      wrong += float16(value).bits != half.bits;
    }
  }
  REQUIRE(wrong == 0);
}

TEST_CASE("float to float16 rounds to nearest, ties to even, through subnormals to infinity") {
  int wrong = 0;
  for_many_floats([&](float value) {
    const auto half = static_cast<float>(float16(value));
    wrong += half != rounded(value, 11, -24, 65536.0) || std::signbit(half) != std::signbit(value);
  });
  REQUIRE(wrong == 0);
}

TEST_CASE("every bfloat16 converts to float and back to itself") {
  int wrong = 0;
  for (std::uint32_t i = 0; i < 0x10000u; ++i) {
    bfloat16 half;
    half.bits = static_cast<std::uint16_t>(i);
    const auto value = static_cast<float>(half);
    if (std::isnan(value)) {
      wrong += !std::isnan(static_cast<float>(bfloat16(value)));
    } else {
      wrong += bfloat16(value).bits != half.bits;
    }
  }
  REQUIRE(wrong == 0);
}

TEST_CASE("float to bfloat16 rounds to nearest, ties to even") {
  int wrong = 0;
  for_many_floats([&](float value) {
    const auto half = static_cast<float>(bfloat16(value));
    wrong += half != rounded(value, 8, -133, 0x1p128) || std::signbit(half) != std::signbit(value);
  });
  REQUIRE(wrong == 0);
}

TEST_CASE("NaN stays NaN with any payload") {
  for (const std::uint32_t bits :
       {0x7f800001u, 0x7fffffffu, 0x7fc00000u, 0xff800001u, 0xffffffffu}) {
    const float nan = std::bit_cast<float>(bits);
    REQUIRE(std::isnan(static_cast<float>(float16(nan))));
    REQUIRE(std::isnan(static_cast<float>(bfloat16(nan))));
  }
}

}  // namespace tessera
