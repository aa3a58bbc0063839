#include "kernels/reduce/op.h"

#include <algorithm>
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
using test::kFloating;
using test::normal_tensor;
using test::same_bits;
using test::to_doubles;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
const std::vector<std::int64_t> kCounts = {0, 1, 3, 17, 1000, 65536, 65537, 200'003};

Tensor result_for(DType dtype) {
  return Tensor::empty({1}, dtype == DType::f64 ? DType::f64 : DType::f32);
}

std::vector<std::int64_t> words_of(const Tensor& x, int exponent) {
  const Tensor words = Tensor::empty({2}, DType::i64);
  sum_of_squares(words, x, exponent, Accumulate::no);
  return words.to_vector<std::int64_t>();
}

// The sum of squares that two words stand for.
long double value_of(const std::vector<std::int64_t>& words, int exponent) {
  const auto high = std::ldexp(static_cast<long double>(words[0]), -30);
  const auto low = std::ldexp(static_cast<long double>(words[1]), -60);
  return std::ldexp(high + low, 2 * exponent);
}

Tensor f32_tensor(const std::vector<float>& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}

std::vector<float> normal_values(std::int64_t count) {
  return normal_tensor({count}, DType::f32, "x").to_vector<float>();
}

}  // namespace

TEST_CASE("max_abs: the largest magnitude, 0 if there is none") {
  const test::Rank rank;
  for (const DType dtype : kFloating) {
    for (const std::int64_t count : kCounts) {
      const Tensor x = normal_tensor({count}, dtype, "x");
      double expected = 0.0;
      for (const double value : to_doubles(x)) expected = std::max(expected, std::fabs(value));
      const Tensor result = result_for(dtype);
      max_abs(result, x);
      REQUIRE(to_doubles(result)[0] == expected);
    }
  }
}

TEST_CASE("max_abs: infinity is the largest, and NaN anywhere gives NaN") {
  const test::Rank rank;
  const Tensor result = result_for(DType::f32);
  for (const std::int64_t place : {0, 5, 65535, 65536, 70'000}) {
    auto x = normal_values(70'001);
    x[place] = -kInfinity;
    max_abs(result, f32_tensor(x));
    REQUIRE(result.item<float>() == kInfinity);
    for (const float nan : {kNaN, -kNaN}) {
      x[70'000 - place] = nan;
      max_abs(result, f32_tensor(x));
      REQUIRE(std::isnan(result.item<float>()));
    }
  }
}

TEST_CASE("sum: within one rounding of the exact sum, for any length and dtype") {
  const test::Rank rank;
  for (const DType dtype : kFloating) {
    for (const std::int64_t count : kCounts) {
      const Tensor x = normal_tensor({count}, dtype, "x");
      long double expected = 0.0L;
      for (const double value : to_doubles(x)) expected += value;
      const Tensor result = result_for(dtype);
      sum(result, x);
      // The partial sums of normal values stay below 4 sqrt(count).
      const double rounding = dtype == DType::f64 ? 1e-12 : 0x1p-24 * std::fabs(expected) + 1e-9;
      REQUIRE(std::fabs(to_doubles(result)[0] - static_cast<double>(expected)) <= rounding);
    }
  }
}

TEST_CASE("sum: the small parts of a long sum are not lost") {
  const test::Rank rank;
  // An f32 running sum of ones stops at 2^24.
  std::vector<float> values((1 << 18) + 1, 1.0f);
  values[0] = 0x1p24f;
  const Tensor result = result_for(DType::f32);
  sum(result, f32_tensor(values));
  REQUIRE(result.item<float>() == 0x1p24f + 0x1p18f);
}

TEST_CASE("max_abs, sum and sum_of_squares: the same bits whoever works when, wherever x lies") {
  const test::Rank owner;  // the tensors outlive the contexts of the schedules
  const Tensor at_vector = normal_tensor({300'001}, DType::bf16, "x");
  std::vector<Tensor> first;
  for (const Tensor& x : {at_vector, test::unaligned(at_vector)}) {
    current_stream().synchronize();  // their streams do not wait for this one
    const auto results = test::under_every_schedule([&] {
      const Tensor maximum = result_for(x.dtype()), total = result_for(x.dtype());
      const Tensor words = Tensor::empty({2}, DType::i64);
      max_abs(maximum, x);
      sum(total, x);
      sum_of_squares(words, x, 3, Accumulate::no);
      return std::vector<Tensor>{maximum, total, words};
    });
    if (first.empty()) first = results[0];
    for (const auto& tensors : results) {
      for (std::size_t i = 0; i < first.size(); ++i) REQUIRE(same_bits(tensors[i], first[i]));
    }
  }
}

TEST_CASE("sum_of_squares: the words are those of the definition in exact arithmetic") {
  const test::Rank rank;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Tensor x = normal_tensor({70'003}, dtype, "x");
    for (const int exponent : {3, 5, 60}) {
      std::vector<std::int64_t> expected = {0, 0};
      for (const double value : to_doubles(x)) {
        // 48 bits: exact in long double, and so is the scaling.
        const long double square = static_cast<long double>(value) * value;
        const auto q = static_cast<std::int64_t>(std::ldexp(square, 60 - 2 * exponent));
        expected[0] += q >> 30;
        expected[1] += q & ((1 << 30) - 1);
      }
      REQUIRE(words_of(x, exponent) == expected);
    }
  }
}

TEST_CASE("sum_of_squares: accurate to 2^-60 of the bound's square per element") {
  const test::Rank rank;
  for (const std::int64_t count : kCounts) {
    const Tensor x = normal_tensor({count}, DType::f32, "x", 1e-3);
    long double expected = 0.0L;
    for (const double value : to_doubles(x)) expected += static_cast<long double>(value) * value;
    constexpr int kExponent = -7;  // |x| < 5 sigma < 2^-7
    const long double difference = expected - value_of(words_of(x, kExponent), kExponent);
    // Squares are rounded down; the reference's own sum may err by 2^-63 of itself per element.
    const long double bound = std::ldexp(static_cast<long double>(count), 2 * kExponent - 60);
    const long double own = expected * static_cast<long double>(count) * 0x1p-63L;
    REQUIRE(difference <= bound + own);
    REQUIRE(difference >= -own);
  }
}

TEST_CASE("sum_of_squares: any order and any partition of the elements gives the same bits") {
  const test::Rank rank;
  constexpr std::int64_t kCount = 30'011;
  const Tensor x = normal_tensor({kCount}, DType::f32, "x");
  const auto expected = words_of(x, 3);

  auto values = x.to_vector<float>();
  std::reverse(values.begin(), values.end());
  REQUIRE(words_of(f32_tensor(values), 3) == expected);
  const RandomPermutation permutation(RandomStream(3, "order"), kCount);
  const auto ordered = x.to_vector<float>();
  for (std::int64_t i = 0; i < kCount; ++i) values[i] = ordered[permutation(i)];
  REQUIRE(words_of(f32_tensor(values), 3) == expected);

  for (const std::int64_t parts : {2, 3, 7, 64}) {
    const Tensor words = Tensor::zeros({2}, DType::i64);
    for (std::int64_t part = parts - 1; part >= 0; --part) {
      const Tensor piece = x.slice(part * kCount / parts, (part + 1) * kCount / parts);
      sum_of_squares(words, piece, 3, Accumulate::yes);
    }
    REQUIRE(words.to_vector<std::int64_t>() == expected);
  }
}

TEST_CASE("sum_of_squares: elements as large as the bound, and the smallest exponents") {
  const test::Rank rank;
  const std::vector<std::int64_t> three = {3 * (std::int64_t{1} << 30), 0};
  REQUIRE(words_of(f32_tensor({8.0f, -8.0f, 8.0f}), 3) == three);
  REQUIRE(words_of(f32_tensor({0x1p-149f, -0x1p-149f, 0x1p-149f}), -149) == three);
  REQUIRE(words_of(f32_tensor({0x1p127f, 0x1p127f}), 127) ==
          std::vector<std::int64_t>{std::int64_t{1} << 31, 0});
  REQUIRE(words_of(f32_tensor({}), 0) == std::vector<std::int64_t>{0, 0});
  const float largest = std::numeric_limits<float>::max();
  REQUIRE(value_of(words_of(f32_tensor({largest}), 128), 128) ==
          static_cast<long double>(largest) * largest);
}

TEST_CASE("sum_of_squares: an element not finite or beyond the bound makes both words negative") {
  const test::Rank rank;
  for (const float bad : {kInfinity, -kInfinity, kNaN, 8.5f, -1e30f}) {
    for (const std::int64_t place : {0, 100, 66'000}) {
      auto values = normal_values(66'001);
      values[place] = bad;
      const Tensor x = f32_tensor(values);
      const Tensor words = Tensor::zeros({2}, DType::i64);
      // Many bad parts between good ones: their mark must neither fade nor wrap around.
      for (int part = 0; part < 5; ++part) {
        sum_of_squares(words, normal_tensor({50}, DType::f32, "y"), 3, Accumulate::yes);
        sum_of_squares(words, x, 3, Accumulate::yes);
        for (const std::int64_t word : words.to_vector<std::int64_t>()) REQUIRE(word < 0);
      }
      for (const std::int64_t word : words_of(x, 3)) REQUIRE(word < 0);
    }
  }
}

TEST_CASE("max_abs, sum and sum_of_squares: wrong arguments are named") {
  const test::Rank rank;
  const Tensor x = Tensor::zeros({4}, DType::f32);
  const Tensor one = Tensor::zeros({1}, DType::f32), two = Tensor::zeros({2}, DType::i64);
  REQUIRE_THROWS_WITH(max_abs(two, x), Contains("max_abs: result is i64 [2]"));
  REQUIRE_THROWS_WITH(max_abs(one, two), Contains("x is i64 [2]"));
  REQUIRE_THROWS_WITH(sum(x, x), Contains("sum: result is f32 [4]; its shape must be [1]"));
  REQUIRE_THROWS_WITH(sum_of_squares(one, x, 0, Accumulate::no), Contains("result is f32 [1]"));
  REQUIRE_THROWS_WITH(sum_of_squares(two, x, 129, Accumulate::no), Contains("exponent is 129"));
}

TEST_CASE("sum and sum_of_squares: where f64 fits and where not", "[cpu]") {
  const test::Rank rank;
  const Tensor one = Tensor::zeros({1}, DType::f32), two = Tensor::zeros({2}, DType::i64);
  const Tensor f64 = Tensor::zeros({4}, DType::f64);
  REQUIRE_THROWS_WITH(sum(one, f64), Contains("sum: result is f32 [1]; its dtype must be f64"));
  REQUIRE_THROWS_WITH(sum_of_squares(two, f64, 0, Accumulate::no), Contains("x is f64 [4]"));
}

}  // namespace tessera
