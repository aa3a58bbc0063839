// Rounding to the two 8-bit formats, and the scales of delayed scaling.
#include "kernels/fp8/op.h"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using Catch::Contains;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The numbers >= 0 of a format in the order of their codes, by the tables of the OCP specification.
std::vector<double> numbers_of(Fp8Format format) {
  const bool e4m3 = format == Fp8Format::e4m3;
  const int mantissa_bits = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15;
  const int last = e4m3 ? 0x7e : 0x7b;
  std::vector<double> numbers;
  for (int code = 0; code <= last; ++code) {
    const int exponent = code >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
    const double fraction = std::ldexp(mantissa, -mantissa_bits);
    numbers.push_back(exponent == 0 ? std::ldexp(fraction, 1 - bias)
                                    : std::ldexp(1.0 + fraction, exponent - bias));
  }
  return numbers;
}

/// The nearest of them to |x|; of two the one with the even code. Beyond the last: the last.
double nearest(const std::vector<double>& numbers, double x) {
  const double magnitude = std::abs(x);
  const auto above = std::ranges::lower_bound(numbers, magnitude);
  if (above == numbers.end()) return std::copysign(numbers.back(), x);
  if (above == numbers.begin()) return std::copysign(*above, x);
  const double low = *(above - 1), high = *above;
  const bool odd_low = (above - 1 - numbers.begin()) % 2 == 1;
  const double middle = (low + high) / 2;
  const bool up = magnitude > middle || (magnitude == middle && odd_low);
  return std::copysign(up ? high : low, x);
}

/// All bf16 numbers, by their bits.
Tensor all_numbers() {
  std::vector<bfloat16> numbers(1 << 16);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i].bits = static_cast<std::uint16_t>(i);
  return Tensor::from(numbers, {1 << 16});
}

Tensor number(float value) {
  return Tensor::from(std::vector<float>{value}, {1});
}

Tensor numbers(const std::vector<float>& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}

}  // namespace

TEST_CASE("fp8: every bf16 number becomes the nearest number of the format, at every scale") {
  const test::Rank rank;
  const Tensor x = all_numbers();
  const std::vector<double> values = test::to_doubles(x);
  for (const Fp8Format format : {Fp8Format::e4m3, Fp8Format::e5m2}) {
    const std::vector<double> numbers = numbers_of(format);
    REQUIRE(numbers.back() == largest_of(format));
    for (const int exponent : {0, 3, -5, 40, -40, 100, -100}) {
      CAPTURE(enum_name(format), exponent);
      const double scale = std::ldexp(1.0, exponent);
      const Tensor y = test::poisoned(x.shape(), DType::bf16);
      fp8_round(y, x, format, number(static_cast<float>(scale)), number(0.0f));
      const std::vector<double> rounded = test::to_doubles(y);
      for (std::size_t i = 0; i < values.size(); ++i) {
        // Where the scaled number is no f32, it is far beyond the format, or far below.
        const double scaled = static_cast<float>(values[i] * scale);
        const bool finite = std::isfinite(values[i]);
        const double expected =
            finite && std::isfinite(scaled) ? nearest(numbers, scaled) / scale : NAN;
        CAPTURE(i, values[i]);
        if (std::isnan(expected)) {
          REQUIRE(std::isnan(rounded[i]));
        } else {
          REQUIRE(std::bit_cast<std::uint64_t>(rounded[i]) ==
                  std::bit_cast<std::uint64_t>(expected));
        }
      }
    }
  }
}

TEST_CASE("fp8: without a scale a tensor stays as it is") {
  const test::Rank rank;
  const Tensor x = all_numbers(), y = test::poisoned(x.shape(), DType::bf16);
  fp8_round(y, x, Fp8Format::e4m3, number(0.0f), number(0.0f));
  REQUIRE(test::same_bits(x, y));
}

TEST_CASE(
    "fp8: rounding in place, and of slices, has the same bits, and finds the largest magnitude") {
  for (const std::int64_t count : {0, 1, 7, 16, 100'003}) {
    CAPTURE(count);
    test::for_every_schedule([&] {
      const Tensor x = test::normal_tensor({count}, DType::bf16, "x");
      double expected = 0.25;
      for (const double value : test::to_doubles(x)) expected = std::max(expected, std::abs(value));
      const Tensor y = test::poisoned({count}, DType::bf16), largest = number(0.25f);
      fp8_round(y, x, Fp8Format::e5m2, number(64.0f), largest);
      REQUIRE(largest.item<float>() == static_cast<float>(expected));
      const Tensor slice = test::unaligned(x), again = number(0.0f);
      fp8_round(slice, slice, Fp8Format::e5m2, number(64.0f), again);
      REQUIRE(test::same_bits(slice, y));
      fp8_round(x, x, Fp8Format::e5m2, number(64.0f), again);
      REQUIRE(test::same_bits(x, y));
      fp8_round(x, x, Fp8Format::e5m2, number(64.0f), again);
      REQUIRE(test::same_bits(x, y));
    });
  }
}

TEST_CASE("fp8: the largest magnitude tells of infinity and NaN") {
  const test::Rank rank;
  const auto largest_in = [](const std::vector<double>& values) {
    const Tensor x = test::tensor_of(values, {std::ssize(values)}, DType::bf16),
                 largest = number(0.0f);
    fp8_round(x, x, Fp8Format::e4m3, number(1.0f), largest);
    return largest.item<float>();
  };
  REQUIRE(largest_in({1.0, -kInfinity, 2.0}) == std::numeric_limits<float>::infinity());
  REQUIRE(std::isnan(largest_in({kInfinity, NAN, 2.0})));
}

TEST_CASE("fp8: a scale is the largest power of two that keeps the last steps within the format") {
  const test::Rank rank;
  const float limit = largest_of(Fp8Format::e4m3);
  const auto scale_after = [&](float value) {
    const Tensor scales = number(0.0f), history = Tensor::zeros({3, 1}, DType::f32);
    fp8_record(history, number(value), number(0.0f), scales, number(limit));
    fp8_scales(scales, history, number(limit));
    return scales.item<float>();
  };
  REQUIRE(scale_after(0.0f) == 0.0f);
  REQUIRE(scale_after(448.0f) == 1.0f);
  REQUIRE(scale_after(std::nextafter(448.0f, 1000.0f)) == 0.5f);
  REQUIRE(scale_after(0x1p-120f) == 0x1p100f);  // the largest scale
  REQUIRE(scale_after(0x1p127f) == 0x1p-119f);
  for (const double value : test::normal_values("largest", 1000)) {
    const auto largest = static_cast<float>(std::abs(value) * std::exp(8.0 * value));
    const float scale = scale_after(largest);
    CAPTURE(largest, scale);
    REQUIRE(std::exp2(std::round(std::log2(scale))) == static_cast<double>(scale));
    REQUIRE(static_cast<double>(largest) * scale <= limit);
    REQUIRE(static_cast<double>(largest) * scale * 2 > limit);
  }
}

TEST_CASE(
    "fp8: a history forgets its oldest step, and steps with infinity or NaN do not enter it") {
  const test::Rank rank;
  const Tensor scales = numbers({0.0f, 0.0f}), history = Tensor::zeros({2, 2}, DType::f32);
  const Tensor excess = numbers({-1.0f, -1.0f}), limits = numbers({448.0f, 57344.0f});
  const auto step = [&](float first, float second) {
    const Tensor largest = numbers({first, second});
    fp8_record(history, largest, excess, scales, limits);
    fp8_scales(scales, history, limits);
    REQUIRE(largest.to_vector<float>() == std::vector{0.0f, 0.0f});
    return scales.to_vector<float>();
  };
  REQUIRE(step(448.0f, 1.0f) == std::vector{1.0f, 32768.0f});
  REQUIRE(excess.to_vector<float>() == std::vector{0.0f, 0.0f});  // nothing was cut before
  REQUIRE(step(4480.0f, 0.5f) == std::vector{0.0625f, 32768.0f});
  REQUIRE(excess.to_vector<float>() == std::vector{10.0f, 0.5f * 32768.0f / 57344.0f});
  REQUIRE(step(1.0f, 0.25f) == std::vector{0.0625f, 65536.0f});
  const std::vector<float> before = history.to_vector<float>();
  REQUIRE(step(NAN, std::numeric_limits<float>::infinity()) == std::vector{0.0625f, 65536.0f});
  REQUIRE(history.to_vector<float>() == before);
  REQUIRE(std::isnan(excess.to_vector<float>()[0]));
  REQUIRE(step(1.0f, 0.0f) == std::vector{256.0f, 131072.0f});
}

TEST_CASE("fp8 refuses arguments that do not fit together") {
  const test::Rank rank;
  const Tensor x = Tensor::zeros({4}, DType::bf16), one = number(1.0f);
  REQUIRE_THROWS_WITH(fp8_round(Tensor::zeros({4}, DType::f32), Tensor::zeros({4}, DType::f32),
                                Fp8Format::e4m3, one, one),
                      Contains("fp8_round: x is f32"));
  REQUIRE_THROWS_WITH(fp8_round(x, x, Fp8Format::e4m3, Tensor::zeros({2}, DType::f32), one),
                      Contains("fp8_round: scale is f32 [2]"));
  const Tensor history = Tensor::zeros({1, 2}, DType::f32);
  REQUIRE_THROWS_WITH(fp8_scales(one, history, one), Contains("fp8_scales: scales is f32 [1]"));
  REQUIRE_THROWS_WITH(fp8_record(one, one, one, one, one),
                      Contains("fp8_record: history is f32 [1]"));
}

}  // namespace tessera
