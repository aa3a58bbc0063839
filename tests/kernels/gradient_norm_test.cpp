#include "kernels/gradient_norm/op.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "kernels/gradient_norm/clip.h"
#include "kernels/tree_reduce/op.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::normal_tensor;
using test::to_doubles;

GradientNorm norm_of(const std::vector<Tensor>& tensors) {
  const GradientNorm norm = GradientNorm::empty();
  sum_of_squares(norm, tensors);
  return norm;
}

/// A sum of squares as a whole number of 2^-298: digits of 16 bits, the lowest first.
using Digits = std::vector<std::uint64_t>;
constexpr std::size_t kDigits = 40;

void resolve_carries(Digits& digits) {
  for (std::size_t i = 0; i + 1 < digits.size(); ++i) {
    digits[i + 1] += digits[i] >> 16;
    digits[i] &= 0xffff;
  }
}

Digits sum_in(const GradientNorm& norm) {
  const auto words = norm.words().to_vector<std::int64_t>();
  Digits digits(kDigits, 0);
  for (std::size_t i = 0; i < kSquareWords; ++i) {
    for (std::size_t part = 0; part < 4; ++part) {
      digits[2 * i + part] += static_cast<std::uint64_t>(words[i]) >> (16 * part) & 0xffff;
    }
  }
  resolve_carries(digits);
  return digits;
}

// The same sum by its definition: x is m 2^e, so x^2 is m^2 2^(2 e).
Digits expected_sum(const std::vector<Tensor>& tensors) {
  Digits digits(kDigits, 0);
  for (const Tensor& tensor : tensors) {
    for (const double x : to_doubles(tensor)) {
      if (x == 0.0) continue;
      int exponent = 0;
      auto m = static_cast<std::uint64_t>(std::ldexp(std::frexp(std::fabs(x), &exponent), 24));
      int position = 2 * (exponent - 24) + 298;
      for (; position < 0; position += 2) m /= 2;         // a denormal number ends with zeros
      std::uint64_t square = (m * m) << (position % 16);  // 48 bits and 15
      for (std::size_t i = position / 16; square > 0; ++i, square >>= 16) {
        digits[i] += square & 0xffff;
      }
    }
  }
  resolve_carries(digits);
  return digits;
}

/// Its root, in long double from the highest digits.
double root_of(const Digits& digits) {
  long double sum = 0.0L;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    sum += std::ldexp(static_cast<long double>(digits[i]), 16 * static_cast<int>(i) - 298);
  }
  return static_cast<double>(std::sqrt(sum));
}

Tensor f32_tensor(const std::vector<float>& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}

}  // namespace

TEST_CASE("gradient_norm: the sum of squares is exact, and the norm is its root") {
  const test::Rank rank;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const double scale : {1e-42, 1e-30, 1e-3, 1.0, 1e4, 1e37}) {
      const bool in_range = dtype != DType::f16 || (scale > 1e-9 && scale < 2e4);
      if (!in_range) continue;
      std::vector<Tensor> tensors;
      for (const std::int64_t count : {8192, 0, 1, 8193, 37, 20'000}) {
        tensors.push_back(normal_tensor({count}, dtype, std::to_string(count), scale));
      }
      tensors.push_back(normal_tensor({500}, dtype, "cut", scale).slice(3, 497));
      INFO(name_of(dtype) << " times " << scale);
      const Digits expected = expected_sum(tensors);
      REQUIRE(sum_in(norm_of(tensors)) == expected);
      REQUIRE(norm_of(tensors).value() == Approx(root_of(expected)).epsilon(4e-16));
    }
  }
}

TEST_CASE("gradient_norm: exact where magnitudes of all sizes are neighbours") {
  const test::Rank rank;
  // 9000 numbers of the powers -149 to 127, and the neighbours of every power of two.
  std::vector<float> values;
  const RandomStream random(4, "powers");
  for (std::uint64_t i = 0; values.size() < 9000; ++i) {
    const auto power = static_cast<int>(random.below(i, 277)) - 149;
    values.push_back(std::ldexp(1.0f + random.uniform(i), power));
  }
  for (int power = -149; power < 128; ++power) {
    const float x = std::ldexp(1.0f, power);
    values.insert(values.end(), {x, -std::nextafter(x, 0.0f), std::nextafter(x, 1e38f)});
  }
  const Tensor x = f32_tensor(values);
  REQUIRE(sum_in(norm_of({x})) == expected_sum({x}));
  // In ascending order every piece has its own largest element.
  std::sort(values.begin(), values.end());
  REQUIRE(sum_in(norm_of({f32_tensor(values)})) == expected_sum({x}));
}

TEST_CASE("gradient_norm: exact for every short length, at every alignment and any mix of sizes") {
  const test::Rank rank;
  const float largest = std::numeric_limits<float>::max();
  const float smallest = std::numeric_limits<float>::denorm_min();
  // Alone and together: subnormal and huge numbers, zeros, and both sides of 2^-19 and 2^-21 of the largest.
  const std::vector<std::vector<float>> mixes = {
      {smallest, 3 * smallest, -0x1p-126f, 0x1.fffffcp-127f},
      {largest, -smallest, 0.0f, 0x1p-10f},
      {0x1.fffffep0f, 0x1p-18f, 0x1.fffffep-19f, 0x1p-20f, 0x1.fffffep-21f, 0x1p-149f},
      {0x1.fffffep-107f, 0x1p-107f, 0x1.fffffep-108f, 0x1p-126f, 0x1.8p-148f},
      {0.0f, -0.0f, 0x1p-60f, 0.0f}};
  for (std::size_t mix = 0; mix < mixes.size(); ++mix) {
    std::vector<float> values(70 + 8192);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = mixes[mix][(i * i + i / 7) % mixes[mix].size()];
    }
    const Tensor all = f32_tensor(values);
    std::vector<Tensor> parts = {all};
    for (std::int64_t count = 0; count <= 65; ++count) {
      parts.push_back(all.slice(count % 4, count % 4 + count));
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      CAPTURE(mix, i);
      REQUIRE(sum_in(norm_of({parts[i]})) == expected_sum({parts[i]}));
    }
    REQUIRE(sum_in(norm_of(parts)) == expected_sum(parts));
  }
}

TEST_CASE("gradient_norm: one small number among thousands of large ones is not lost") {
  const test::Rank rank;
  for (const std::size_t place : {0, 37, 1023, 8191}) {
    for (const float small : {0x1.fffffep-20f, 0x1.fffffep-60f}) {
      std::vector<float> values(8192, 0x1.fffffep0f);
      values[place] = small;
      const Tensor x = f32_tensor(values);
      REQUIRE(sum_in(norm_of({x})) == expected_sum({x}));
    }
  }
}

TEST_CASE("gradient_norm: more tensors than a launch takes, in any order") {
  const test::Rank rank;
  std::vector<Tensor> tensors;
  for (int i = 0; i < 200; ++i) {
    tensors.push_back(normal_tensor({1 + i % 9}, DType::f32, std::to_string(i)));
  }
  const Digits expected = expected_sum(tensors);
  REQUIRE(sum_in(norm_of(tensors)) == expected);
  std::reverse(tensors.begin(), tensors.end());
  REQUIRE(sum_in(norm_of(tensors)) == expected);
}

TEST_CASE("gradient_norm: no elements, zeros, and the ends of the range") {
  const test::Rank rank;
  const float largest = std::numeric_limits<float>::max();
  const float smallest = std::numeric_limits<float>::denorm_min();
  CHECK(norm_of({}).value() == 0.0);
  CHECK(norm_of({Tensor::zeros({5}, DType::f32), Tensor::zeros({0}, DType::f32)}).value() == 0.0);
  CHECK(norm_of({Tensor::from(std::vector{smallest}, {1})}).value() == double{smallest});
  CHECK(norm_of({Tensor::from(std::vector{largest, -largest}, {2})}).value() ==
        Approx(std::sqrt(2.0) * double{largest}));
}

TEST_CASE("gradient_norm: many elements just below a power of two, and the largest of all") {
  const test::Rank rank;
  for (const float value : {std::nextafter(1.0f, 0.0f), std::numeric_limits<float>::max()}) {
    const Tensor x = f32_tensor(std::vector<float>(20'000, value));
    REQUIRE(sum_in(norm_of({x})) == expected_sum({x}));
  }
}

TEST_CASE("gradient_norm: infinity gives infinity, and NaN anywhere gives NaN") {
  const test::Rank rank;
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const Tensor a = normal_tensor({9000}, DType::f32, "a");
  CHECK(norm_of({a, Tensor::from(std::vector{-infinity}, {1})}).value() == double{infinity});
  CHECK(std::isnan(norm_of({Tensor::from(std::vector{infinity, -nan}, {2}), a}).value()));
  CHECK(std::isnan(norm_of({Tensor::from(std::vector{bfloat16(nan)}, {1})}).value()));
}

TEST_CASE("gradient_norm: the words of two parts add up to those of the whole") {
  const test::Rank rank;
  const Tensor a = normal_tensor({100}, DType::f32, "a");
  const Tensor b = Tensor::from(std::vector{1000.0f, 1e-30f}, {2});
  const GradientNorm norm = norm_of({a});
  tree_reduce(norm.words(), std::vector{norm.words(), norm_of({b}).words()}, Reduction::sum);
  REQUIRE(sum_in(norm) == expected_sum({a, b}));
  REQUIRE(norm.value() == norm_of({b, a}).value());
  // Infinity in a part, then NaN in another.
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float value : {infinity, std::nanf("")}) {
    const GradientNorm other = norm_of({f32_tensor({value, 1.0f})});
    tree_reduce(norm.words(), std::vector{other.words(), norm.words()}, Reduction::sum);
    CHECK(std::isnan(norm.value()) == std::isnan(value));
    CHECK_FALSE(std::isfinite(norm.value()));
  }
}

TEST_CASE("gradient_norm: any order and any partition of the elements gives the same bits") {
  const test::Rank rank;
  constexpr std::int64_t kCount = 30'011;
  const Tensor x = normal_tensor({kCount}, DType::f32, "x");
  const double expected = norm_of({x}).value();
  const auto ordered = x.to_vector<float>();
  std::vector<float> values(ordered.rbegin(), ordered.rend());
  REQUIRE(norm_of({f32_tensor(values)}).value() == expected);
  const RandomPermutation permutation(RandomStream(3, "order"), kCount);
  for (std::int64_t i = 0; i < kCount; ++i) values[i] = ordered[permutation(i)];
  REQUIRE(norm_of({f32_tensor(values)}).value() == expected);
  for (const std::int64_t parts : {2, 3, 7, 64}) {
    std::vector<Tensor> pieces;
    for (std::int64_t part = parts - 1; part >= 0; --part) {
      pieces.push_back(x.slice(part * kCount / parts, (part + 1) * kCount / parts));
    }
    REQUIRE(norm_of(pieces).value() == expected);
  }
}

TEST_CASE("gradient_norm: the same bits under every schedule, at any address") {
  const test::Rank owner;  // the tensors outlive the contexts of the schedules
  const Tensor aligned = normal_tensor({50'001}, DType::bf16, "x");
  const Digits expected = expected_sum({aligned});
  for (const Tensor& x : {aligned, test::unaligned(aligned)}) {
    current_stream().synchronize();  // their streams do not wait for this one
    test::for_every_schedule([&] { REQUIRE(sum_in(norm_of({x})) == expected); });
  }
}

TEST_CASE("gradient_norm: the words of 2^20 ranks with 20,000 elements each do not overflow") {
  const test::Rank rank;
  const GradientNorm norm = norm_of({normal_tensor({20'000}, DType::f32, "g", 0.1)});
  const double alone = norm.value();
  for (int doubling = 0; doubling < 20; ++doubling) {
    tree_reduce(norm.words(), std::vector{norm.words(), norm.words()}, Reduction::sum);
  }
  REQUIRE(norm.value() == Approx(1024.0 * alone).epsilon(1e-14));
  const Tensor loss = f32_tensor({2.5f}), factor = Tensor::empty({1}, DType::f32);
  clip_factor(factor, norm, loss, {.max_norm = 1.0});
  REQUIRE(factor.item<float>() == static_cast<float>(1.0 / norm.value()));
}

TEST_CASE("clip_factor: the same factor as on the host in double") {
  const test::Rank rank;
  const Tensor loss = Tensor::from(std::vector{2.5f}, {1}), factor = Tensor::empty({1}, DType::f32);
  const GradientNorm norm = norm_of({normal_tensor({1000}, DType::f32, "g", 0.1)});
  for (const double max_norm : {0.0, 0.7, 1.0, 1e6}) {
    for (const double scale : {1.0, 65536.0}) {
      clip_factor(factor, norm, loss, {.max_norm = max_norm, .loss_scale = scale});
      const double expected = clip_scale(norm.value() / scale, max_norm) / scale;
      REQUIRE(factor.item<float>() == static_cast<float>(expected));
    }
  }
}

TEST_CASE("clip_factor: NaN if the norm or the loss is not finite, clipping or not") {
  const test::Rank rank;
  const Tensor factor = Tensor::empty({1}, DType::f32);
  const float infinity = std::numeric_limits<float>::infinity();
  for (const double max_norm : {0.0, 1.0}) {
    for (const auto& [gradient, loss] : {std::pair{infinity, 1.0f},
                                         {std::nanf(""), 1.0f},
                                         {1.0f, infinity},
                                         {1.0f, std::nanf("")}}) {
      clip_factor(factor, norm_of({Tensor::from(std::vector{gradient}, {1})}),
                  Tensor::from(std::vector{loss}, {1}), {.max_norm = max_norm});
      CHECK(std::isnan(factor.item<float>()));
    }
  }
}

TEST_CASE("gradient_norm, clip_factor: wrong arguments are named") {
  const test::Rank rank;
  const GradientNorm norm = GradientNorm::empty();
  const Tensor f32 = Tensor::zeros({1}, DType::f32), bf16 = Tensor::zeros({1}, DType::bf16);
  const Tensor i32 = Tensor::zeros({1}, DType::i32), two = Tensor::zeros({2}, DType::f32);
  REQUIRE_THROWS_WITH(sum_of_squares(norm, std::vector{f32, bf16}),
                      Contains("x is bf16 [1] and the first x is f32 [1]"));
  REQUIRE_THROWS_WITH(sum_of_squares(norm, std::vector{i32}), Contains("x is i32 [1]"));
  REQUIRE_THROWS_WITH(clip_factor(two, norm, f32, {}), Contains("factor is f32 [2]"));
  REQUIRE_THROWS_WITH(clip_factor(f32, norm, bf16, {}), Contains("loss is bf16 [1]"));
  REQUIRE_THROWS_WITH(clip_factor(f32, norm, f32, {.loss_scale = 0.0}),
                      Contains("loss scale is 0"));
}

}  // namespace tessera
