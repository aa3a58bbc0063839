// Rounding to the two 8-bit formats, and the scales of delayed scaling.
#include "kernels/fp8/op.h"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "kernels/cast/op.h"
#include "tests/kernels/fp8_numbers.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::nearest;
using test::numbers_of;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// All bf16 numbers, by their bits.
Tensor all_numbers() {
  std::vector<bfloat16> numbers(1 << 16);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i].bits = static_cast<std::uint16_t>(i);
  return Tensor::from(numbers, {1 << 16});
}

Tensor number(float value) {
  return Tensor::from(std::vector<float>{value}, {1});
}

Tensor quantized(const Tensor& x, DType format, float scale, const Tensor& largest) {
  const Tensor y = Tensor::zeros(x.shape(), format);
  fp8_quantize(y, {}, x, number(scale), largest);
  return y;
}

Tensor expanded(const Tensor& y, float inverse) {
  const Tensor x = test::poisoned(y.shape(), DType::bf16);
  fp8_expand(x, y, number(inverse));
  return x;
}

Tensor numbers(const std::vector<float>& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}

}  // namespace

TEST_CASE("fp8: every bf16 number becomes the nearest number of the format, at every scale") {
  const test::Rank rank;
  const Tensor x = all_numbers();
  const std::vector<double> values = test::to_doubles(x);
  for (const DType format : {DType::e4m3, DType::e5m2}) {
    const std::vector<double> numbers = numbers_of(format);
    REQUIRE(numbers.back() == largest_of(format));
    for (const int exponent : {0, 3, -5, 40, -40, 100, -100}) {
      CAPTURE(name_of(format), exponent);
      const double scale = std::ldexp(1.0, exponent);
      const Tensor y = quantized(x, format, static_cast<float>(scale), number(0.0f));
      const std::vector<double> rounded =
          test::to_doubles(expanded(y, static_cast<float>(1 / scale)));
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

TEST_CASE("fp8: f32 numbers are rounded to bf16 first, in the same pass") {
  const test::Rank rank;
  // Just below, at and just above the middle of two e4m3 numbers: bf16 has the middle alone. And ties of bf16.
  const Tensor ties = numbers({17.0f, std::nextafter(17.0f, 16.0f), std::nextafter(17.0f, 18.0f),
                               1.0f + 0x1p-8f, -1.0f - 0x3p-8f, 447.9f, 3.4e38f, kNan, -kNan});
  const Tensor all = test::normal_tensor({1031}, DType::f32, "x");
  for (const Tensor& x : {ties, all, test::unaligned(all)}) {
    const Tensor narrow = Tensor::zeros(x.shape(), DType::bf16);
    cast(narrow, x);
    const Tensor largest = number(0.0f), expected = number(0.0f);
    const Tensor y = quantized(narrow, DType::e4m3, 16.0f, expected);
    REQUIRE(test::same_bits(quantized(x, DType::e4m3, 16.0f, largest), y));
    REQUIRE(test::same_bits(largest, expected));
  }
  const Tensor one = quantized(ties, DType::e4m3, 1.0f, number(0.0f));
  const std::vector<double> rounded = test::to_doubles(expanded(one, 1.0f));
  REQUIRE(rounded[1] == 16.0);  // 17 in bf16, and of 16 and 18 the even code
  REQUIRE(rounded[2] == 16.0);  // f32's own rounding would be 18
}

TEST_CASE("fp8: slices have the same bits, and the largest magnitude is found in any order") {
  for (const std::int64_t count : {0, 1, 7, 16, 100'003}) {
    CAPTURE(count);
    test::for_every_schedule([&] {
      const Tensor x = test::normal_tensor({count}, DType::bf16, "x");
      double expected = 0.25;
      for (const double value : test::to_doubles(x)) expected = std::max(expected, std::abs(value));
      const Tensor largest = number(0.25f), again = number(0.0f);
      const Tensor y = quantized(x, DType::e5m2, 64.0f, largest);
      REQUIRE(largest.item<float>() == static_cast<float>(expected));
      REQUIRE(test::same_bits(quantized(test::unaligned(x), DType::e5m2, 64.0f, again), y));
      const Tensor wide = expanded(y, 1 / 64.0f);
      const Tensor slice = test::unaligned(wide);
      fp8_expand(slice, y, number(1 / 64.0f));
      REQUIRE(test::same_bits(slice, wide));
      // Numbers of the format stay as they are.
      REQUIRE(test::same_bits(quantized(wide, DType::e5m2, 64.0f, again), y));
    });
  }
}

TEST_CASE("fp8: a transposed matrix has every number in its place") {
  for (const Shape& shape :
       {Shape{1, 1}, Shape{64, 64}, Shape{100, 132}, Shape{67, 3}, Shape{5, 129}, Shape{0, 4}}) {
    CAPTURE(shape);
    test::for_every_schedule([&] {
      const Tensor x = test::normal_tensor(shape, DType::bf16, "x");
      const Tensor y = quantized(x, DType::e4m3, 64.0f, number(0.0f));
      const Tensor yt = Tensor::zeros({shape[1], shape[0]}, DType::e4m3);
      fp8_transpose(yt, y);
      const std::vector<double> values = test::to_doubles(expanded(y, 1.0f)),
                                transposed = test::to_doubles(expanded(yt, 1.0f));
      for (std::int64_t r = 0; r < shape[0]; ++r) {
        for (std::int64_t c = 0; c < shape[1]; ++c) {
          REQUIRE(transposed[c * shape[0] + r] == values[r * shape[1] + c]);
        }
      }
    });
  }
}

TEST_CASE("fp8: one pass writes rows, columns or both, and finds the largest magnitude") {
  const auto check = [](const Tensor& x, DType format) {
    const auto place = [&](bool transposed, bool unaligned) {
      const Tensor y = Tensor::zeros(
          transposed ? Shape{x.size(1), x.size(0)} : Shape{x.size(0), x.size(1)}, format);
      return unaligned ? test::unaligned(y) : y;
    };
    const Tensor rows = place(false, false), columns = place(true, false), most = number(0.25f);
    fp8_quantize(rows, {}, x, number(16.0f), most);
    fp8_transpose(columns, rows);
    for (const bool unaligned : {false, true}) {
      CAPTURE(unaligned);
      const Tensor y = place(false, unaligned), yt = place(true, unaligned),
                   yt_alone = place(true, unaligned);
      const Tensor of_both = number(0.25f), of_columns = number(0.25f);
      fp8_quantize(y, yt, x, number(16.0f), of_both);
      fp8_quantize({}, yt_alone, x, number(16.0f), of_columns);
      REQUIRE(test::same_bits(y, rows));
      REQUIRE(test::same_bits(yt, columns));
      REQUIRE(test::same_bits(yt_alone, columns));
      REQUIRE(test::same_bits(of_both, most));
      REQUIRE(test::same_bits(of_columns, most));
    }
  };
  // Numbers that are cut, and infinity and NaN in the last place.
  for (const double last : {4.0, 1e6, -kInfinity, static_cast<double>(kNan)}) {
    for (const DType dtype : {DType::bf16, DType::f32}) {
      for (const Shape& shape : {Shape{1, 1}, Shape{64, 64}, Shape{100, 132}, Shape{68, 3},
                                 Shape{5, 129}, Shape{3, 68}, Shape{0, 4}}) {
        CAPTURE(last, name_of(dtype), shape);
        test::for_every_schedule([&] {
          std::vector<double> values =
              test::to_doubles(test::normal_tensor(shape, DType::f32, "x", 20.0));
          if (!values.empty()) values.back() = last;
          const Tensor x = test::tensor_of(values, shape, dtype);
          for (const DType format : {DType::e4m3, DType::e5m2}) {
            check(x, format);
            check(test::unaligned(x), format);
          }
        });
      }
    }
  }
  // More squares than blocks.
  const test::Rank rank;
  check(test::normal_tensor({1, 64 * 4096 + 1}, DType::bf16, "x"), DType::e4m3);
}

TEST_CASE("fp8: the largest magnitude tells of infinity and NaN") {
  const test::Rank rank;
  const auto largest_in = [](const std::vector<double>& values) {
    const Tensor x = test::tensor_of(values, {std::ssize(values)}, DType::bf16),
                 largest = number(0.0f);
    quantized(x, DType::e4m3, 1.0f, largest);
    return largest.item<float>();
  };
  REQUIRE(largest_in({1.0, -kInfinity, 2.0}) == std::numeric_limits<float>::infinity());
  REQUIRE(std::isnan(largest_in({kInfinity, NAN, 2.0})));
}

TEST_CASE("fp8: a scale is the largest power of two that keeps the last steps within the format") {
  const test::Rank rank;
  const float limit = largest_of(DType::e4m3);
  const auto scale_after = [&](float value) {
    const Tensor scales = number(0.0f), inverses = number(0.0f);
    const Tensor history = Tensor::zeros({3, 1}, DType::f32);
    fp8_record(history, number(value), number(0.0f), scales, number(limit));
    fp8_scales(scales, inverses, history, number(limit));
    REQUIRE(inverses.item<float>() == 1.0f / scales.item<float>());
    return scales.item<float>();
  };
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
    "fp8: a history forgets its oldest step, and steps of 0, infinity or NaN do not enter it") {
  const test::Rank rank;
  const Tensor scales = numbers({0.0f, 0.0f}), history = Tensor::zeros({2, 2}, DType::f32);
  const Tensor excess = numbers({-1.0f, -1.0f}), limits = numbers({448.0f, 57344.0f});
  const auto step = [&](float first, float second) {
    const Tensor largest = numbers({first, second});
    fp8_record(history, largest, excess, scales, limits);
    fp8_scales(scales, Tensor::zeros({2}, DType::f32), history, limits);
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
  REQUIRE(step(1.0f, 0.0f) == std::vector{256.0f, 65536.0f});
}

TEST_CASE("fp8 refuses arguments that do not fit together") {
  const test::Rank rank;
  const Tensor x = Tensor::zeros({4}, DType::bf16), one = number(1.0f);
  const Tensor y = Tensor::zeros({4}, DType::e4m3), matrix = Tensor::zeros({2, 2}, DType::e4m3);
  REQUIRE_THROWS_WITH(fp8_quantize(x, {}, x, one, one),
                      Contains("fp8_quantize: y is bf16; it must be e4m3 or e5m2"));
  REQUIRE_THROWS_WITH(fp8_quantize(y, {}, Tensor::zeros({4}, DType::f16), one, one),
                      Contains("fp8_quantize: x is f16; it must be bf16 or f32"));
  REQUIRE_THROWS_WITH(fp8_quantize(y, {}, x, Tensor::zeros({2}, DType::f32), one),
                      Contains("fp8_quantize: scale is f32 [2]"));
  REQUIRE_THROWS_WITH(fp8_quantize({}, {}, x, one, one),
                      Contains("fp8_quantize: y and yt are undefined; one of them is written"));
  REQUIRE_THROWS_WITH(fp8_quantize(y, y, x, one, one), Contains("fp8_quantize: x is bf16 [4]"));
  const Tensor wide = Tensor::zeros({2, 3}, DType::bf16),
               codes = Tensor::zeros({3, 2}, DType::e4m3);
  REQUIRE_THROWS_WITH(fp8_quantize({}, Tensor::zeros({2, 3}, DType::e4m3), wide, one, one),
                      Contains("fp8_quantize: yt is e4m3 [2, 3]"));
  REQUIRE_THROWS_WITH(fp8_quantize(Tensor::zeros({2, 3}, DType::e5m2), codes, wide, one, one),
                      Contains("fp8_quantize: yt"));
  REQUIRE_THROWS_WITH(fp8_expand(Tensor::zeros({5}, DType::bf16), y, one),
                      Contains("fp8_expand: y is e4m3 [4]"));
  REQUIRE_THROWS_WITH(fp8_transpose(matrix, matrix), Contains("fp8_transpose: yt"));
  REQUIRE_THROWS_WITH(fp8_transpose(y, y), Contains("fp8_transpose: y"));
  const Tensor history = Tensor::zeros({1, 2}, DType::f32);
  REQUIRE_THROWS_WITH(fp8_scales(one, one, history, one),
                      Contains("fp8_scales: scales is f32 [1]"));
  REQUIRE_THROWS_WITH(fp8_record(one, one, one, one, one),
                      Contains("fp8_record: history is f32 [1]"));
}

}  // namespace tessera
