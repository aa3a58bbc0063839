#include "kernels/adamw/op.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::normal_tensor;
using test::relative_error;
using test::same_bits;
using test::to_doubles;
using Values = std::vector<double>;

const AdamWSettings kSettings = {.learning_rate = 0.02,
                                 .beta1 = 0.8,
                                 .beta2 = 0.95,
                                 .epsilon = 1e-3,
                                 .weight_decay = 0.3,
                                 .gradient_scale = 0.25,
                                 .step = 3};

// Parameters in the middle of training, with what belongs to them.
AdamWTensors tensors_of(std::int64_t count, DType gradient_dtype = DType::f32,
                        const std::string& name = "") {
  std::vector<float> squares = normal_tensor({count}, DType::f32, name + "v").to_vector<float>();
  for (float& value : squares) value *= 0.04f * value;
  return {.p = normal_tensor({count}, DType::f32, name + "p"),
          .m = normal_tensor({count}, DType::f32, name + "m", 0.1),
          .v = Tensor::from(squares, {count}),
          .gradient = normal_tensor({count}, gradient_dtype, name + "gradient")};
}

void update(const AdamWTensors& tensors, const AdamWSettings& settings) {
  adamw(std::span(&tensors, 1), settings);
}

// Elements [begin, end) of each.
AdamWTensors slice(const AdamWTensors& t, std::int64_t begin, std::int64_t end) {
  return {.p = t.p.slice(begin, end),
          .m = t.m.slice(begin, end),
          .v = t.v.slice(begin, end),
          .gradient = t.gradient.slice(begin, end),
          .decay = t.decay};
}

void require_same_bits(const AdamWTensors& a, const AdamWTensors& b) {
  REQUIRE(same_bits(a.p, b.p));
  REQUIRE(same_bits(a.m, b.m));
  REQUIRE(same_bits(a.v, b.v));
}

// The update as the paper writes it (Algorithm 2), in double.
void reference_update(Values& p, Values& m, Values& v, const Values& gradient,
                      const AdamWSettings& s) {
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double g = gradient[i] * s.gradient_scale;
    m[i] = s.beta1 * m[i] + (1.0 - s.beta1) * g;
    v[i] = s.beta2 * v[i] + (1.0 - s.beta2) * g * g;
    const double m_hat = m[i] / (1.0 - std::pow(s.beta1, s.step));
    const double v_hat = v[i] / (1.0 - std::pow(s.beta2, s.step));
    p[i] -= s.learning_rate * (m_hat / (std::sqrt(v_hat) + s.epsilon) + s.weight_decay * p[i]);
  }
}

}  // namespace

TEST_CASE("adamw: p, m and v follow the paper's update") {
  const test::Rank rank;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const std::int64_t count : {0, 1, 17, 1000, 8192, 70'001}) {
      INFO(name_of(dtype) << " " << count);
      const AdamWTensors c = tensors_of(count, dtype);
      Values p = to_doubles(c.p), m = to_doubles(c.m), v = to_doubles(c.v);
      reference_update(p, m, v, to_doubles(c.gradient), kSettings);
      update(c, kSettings);
      REQUIRE(relative_error(to_doubles(c.p), p) <= 1e-7);
      REQUIRE(relative_error(to_doubles(c.m), m) <= 1e-7);
      REQUIRE(relative_error(to_doubles(c.v), v) <= 2e-7);
    }
  }
}

TEST_CASE("adamw: many steps from zero moments stay with the reference") {
  const test::Rank rank;
  const AdamWTensors c = tensors_of(500);
  c.m.zero();
  c.v.zero();
  AdamWSettings settings = kSettings;
  settings.epsilon = 1e-8;
  Values p = to_doubles(c.p), m(500), v(500);
  for (settings.step = 1; settings.step <= 50; ++settings.step) {
    reference_update(p, m, v, to_doubles(c.gradient), settings);
    update(c, settings);
  }
  REQUIRE(relative_error(to_doubles(c.p), p) <= 1e-6);
}

TEST_CASE("adamw: the bias correction survives a million steps with beta2 near 1") {
  const test::Rank rank;
  const AdamWTensors c = tensors_of(100);
  AdamWSettings settings = kSettings;
  settings.beta2 = 0.9999;
  for (const std::int64_t step : {std::int64_t{1}, std::int64_t{1'000'000}}) {
    settings.step = step;
    Values p = to_doubles(c.p), m = to_doubles(c.m), v = to_doubles(c.v);
    reference_update(p, m, v, to_doubles(c.gradient), settings);
    update(c, settings);
    REQUIRE(relative_error(to_doubles(c.p), p) <= 2e-7);
  }
}

TEST_CASE(
    "adamw: the first step moves each parameter by the learning rate, whatever the gradient") {
  const test::Rank rank;
  const Tensor p = Tensor::zeros({3}, DType::f32), m = Tensor::zeros({3}, DType::f32),
               v = Tensor::zeros({3}, DType::f32);
  const Tensor gradient = Tensor::from(std::vector<float>{1e-6f, -3.0f, 1e6f}, {3});
  update({p, m, v, gradient}, {.learning_rate = 0.5, .epsilon = 0.0, .step = 1});
  REQUIRE(relative_error(to_doubles(p), {-0.5, 0.5, -0.5}) <= 3e-7);
}

TEST_CASE("adamw: a range gives the same bits whole or in pieces, whatever their alignment") {
  const test::Rank rank;
  constexpr std::int64_t kCount = 2001;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const AdamWTensors whole = tensors_of(kCount, dtype);
    update(whole, kSettings);
    for (const std::int64_t piece : {5, 16, 31, 1000}) {
      const AdamWTensors cut = tensors_of(kCount, dtype);
      std::vector<AdamWTensors> pieces;
      for (std::int64_t begin = 0; begin < kCount; begin += piece) {
        pieces.push_back(slice(cut, begin, std::min(kCount, begin + piece)));
      }
      adamw(pieces, kSettings);
      INFO(name_of(dtype) << " in pieces of " << piece);
      require_same_bits(cut, whole);
    }
  }
}

TEST_CASE("adamw: tensors of one alignment each get the bits of aligned ones") {
  const test::Rank rank;
  constexpr std::int64_t kCount = 301;
  const AdamWTensors whole = tensors_of(kCount);
  update(whole, kSettings);
  for (int misaligned = 0; misaligned < 4; ++misaligned) {
    AdamWTensors t = tensors_of(kCount);
    Tensor* const members[] = {&t.p, &t.m, &t.v, &t.gradient};
    const Tensor room = Tensor::zeros({kCount + 1}, DType::f32).slice(1, kCount + 1);
    room.copy_from(*members[misaligned]);
    *members[misaligned] = room;
    update(t, kSettings);
    require_same_bits(t, whole);
  }
}

TEST_CASE("adamw: many tensors in one call, each with its own decay, neighbours untouched") {
  const test::Rank rank;
  // More than one launch can take, sizes around a block's chunk (8192), empty ones.
  const std::vector<std::int64_t> sizes = {8192, 0, 8193, 1, 24577, 8191, 5, 0, 3};
  constexpr int kTensors = 200;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    std::vector<AdamWTensors> together, alone;
    for (int i = 0; i < kTensors; ++i) {
      const std::int64_t count = i < static_cast<int>(sizes.size()) ? sizes[i] : 1 + i % 7;
      for (auto* list : {&together, &alone}) {
        // A guard element at both ends.
        AdamWTensors t = tensors_of(count + 2, dtype, std::to_string(i));
        t.decay = i % 3 != 0;
        list->push_back(t);
      }
    }
    std::vector<AdamWTensors> inner;
    for (const AdamWTensors& t : together) inner.push_back(slice(t, 1, t.p.numel() - 1));
    adamw(inner, kSettings);
    for (int i = 0; i < kTensors; i += i < 12 || i > 180 ? 1 : 13) {
      INFO("tensor " << i);
      AdamWSettings settings = kSettings;
      if (!alone[i].decay) settings.weight_decay = 0.0;
      alone[i].decay = true;
      update(slice(alone[i], 1, alone[i].p.numel() - 1), settings);
      require_same_bits(together[i], alone[i]);
    }
  }
}

TEST_CASE("adamw: a scale on the device counts instead of the setting") {
  const test::Rank rank;
  const AdamWTensors expected = tensors_of(1030), c = tensors_of(1030);
  update(expected, kSettings);
  AdamWSettings settings = kSettings;
  settings.gradient_scale = 1000.0;
  const Tensor scale = Tensor::from(std::vector{0.25f}, {1});
  adamw(std::span(&c, 1), settings, scale);
  require_same_bits(c, expected);
}

TEST_CASE("adamw: a scale that is not finite changes nothing") {
  const test::Rank rank;
  const AdamWTensors before = tensors_of(100), c = tensors_of(100);
  for (const float value : {NAN, INFINITY, -INFINITY}) {
    adamw(std::span(&c, 1), kSettings, Tensor::from(std::vector{value}, {1}));
    require_same_bits(c, before);
  }
}

// bf16 parameters of value `start` that a step moves by `-move` before they are rounded: the first
// step goes by the learning rate.
AdamWTensors moving(std::int64_t count, float start, std::string_view name) {
  return {.p = Tensor::from(std::vector<bfloat16>(count, bfloat16(start)), {count}),
          .m = Tensor::zeros({count}, DType::f32),
          .v = Tensor::zeros({count}, DType::f32),
          .gradient = Tensor::full({count}, DType::f32, 1.0),
          .rounding = RandomStream(1, name)};
}

TEST_CASE("adamw: in bf16 p is one of the two neighbours, and right in the mean") {
  const test::Rank rank;
  constexpr std::int64_t kCount = 40'000;
  // Neighbours of 1 are 1 - 2^-8 and 1 + 2^-7; towards zero by 0.3 of the gap of 2^-8.
  for (const double part : {0.3, 0.5, 0.9}) {
    const AdamWTensors c = moving(kCount, 1.0f, "p");
    update(c, {.learning_rate = part / 256, .epsilon = 0.0});
    double down = 0.0;
    for (const double p : to_doubles(c.p)) {
      REQUIRE((p == 1.0 || p == 1.0 - 1.0 / 256));
      down += p < 1.0 ? 1.0 : 0.0;
    }
    // Five standard deviations of a binomial share.
    REQUIRE(std::fabs(down / kCount - part) < 5 * std::sqrt(part * (1 - part) / kCount));
  }
}

TEST_CASE("adamw: in bf16 exact values stay, and infinity and NaN are what they are") {
  const test::Rank rank;
  const AdamWTensors huge = moving(500, 3e38f, "p");
  update(huge, {.learning_rate = -3e38, .epsilon = 0.0});
  for (const double p : to_doubles(huge.p)) REQUIRE(p == std::numeric_limits<double>::infinity());
  for (const float value : {0.0f, -0.0f, 1.5f, -3e38f, 1e-40f, NAN}) {
    const AdamWTensors c = moving(500, value, "p");
    const Tensor before = c.p.clone();
    update(c, {.learning_rate = 0.0});
    REQUIRE(same_bits(c.p, before));
  }
}

TEST_CASE("adamw: in bf16 neighbours, parameters and steps draw independent bits") {
  const test::Rank rank;
  constexpr std::int64_t kCount = 20'000;
  const auto draws = [&](std::string_view name, std::int64_t first) {
    AdamWTensors c = moving(kCount, 1.0f, name);
    c.first = first;
    update(c, {.learning_rate = 0.5 / 256, .epsilon = 0.0});
    std::vector<double> signs;
    for (const double p : to_doubles(c.p)) signs.push_back(p < 1.0 ? 1.0 : -1.0);
    return signs;
  };
  const auto correlation = [](const std::vector<double>& a, const std::vector<double>& b, int lag) {
    double sum = 0.0;
    for (std::size_t i = lag; i < a.size(); ++i) sum += a[i] * b[i - lag];
    return std::fabs(sum) / static_cast<double>(a.size());
  };
  const Values a = draws("a", 0), b = draws("b", 0);
  const double noise = 5 / std::sqrt(static_cast<double>(kCount));
  CHECK(correlation(a, b, 0) < noise);
  for (const int lag : {1, 2, 3, 4, 8, 1024}) CHECK(correlation(a, a, lag) < noise);
  // The address counts, not the place in the tensor.
  const Values shifted = draws("a", 7);
  CHECK(std::equal(a.begin() + 7, a.end(), shifted.begin()));
}

TEST_CASE("adamw: in bf16 a range gives the same bits whole or in pieces") {
  const test::Rank rank;
  constexpr std::int64_t kCount = 1501;
  const auto make = [] {
    AdamWTensors t = tensors_of(kCount);
    t.p = normal_tensor({kCount}, DType::bf16, "p");
    t.rounding = RandomStream(5, "w", 3);
    t.first = 1;
    return t;
  };
  const AdamWTensors whole = make();
  update(whole, kSettings);
  for (const std::int64_t piece : {5, 16, 31, 1000}) {
    const AdamWTensors cut = make();
    std::vector<AdamWTensors> pieces;
    for (std::int64_t begin = 0; begin < kCount; begin += piece) {
      pieces.push_back(slice(cut, begin, std::min(kCount, begin + piece)));
      pieces.back().rounding = cut.rounding;
      pieces.back().first = cut.first + begin;
    }
    adamw(pieces, kSettings);
    require_same_bits(cut, whole);
  }
}

TEST_CASE("adamw: the device gets the bits of the CPU") {
  RankContext cpu({.threads = 2});
  const auto updated = [](DType parameter_dtype, DType gradient_dtype) {
    AdamWTensors c = tensors_of(10'007, gradient_dtype);
    if (parameter_dtype == DType::bf16) c.p = normal_tensor({10'007}, DType::bf16, "p");
    c.rounding = RandomStream(9, "w", 2);
    c.first = 6;
    update(c, kSettings);
    return std::vector{test::bytes_of(c.p), test::bytes_of(c.m), test::bytes_of(c.v)};
  };
  for (const DType parameter_dtype : {DType::f32, DType::bf16}) {
    for (const DType gradient_dtype : {DType::f32, DType::bf16, DType::f16}) {
      std::vector<std::vector<std::uint8_t>> expected;
      {
        const ContextGuard guard(cpu);
        expected = updated(parameter_dtype, gradient_dtype);
      }
      const test::Rank rank;
      REQUIRE(updated(parameter_dtype, gradient_dtype) == expected);
    }
  }
}

TEST_CASE("adamw: the same bits for any number of threads", "[cpu]") {
  const test::Rank owner;
  const AdamWTensors expected = tensors_of(100'003);
  update(expected, kSettings);
  for (const int threads : {1, 2, 3}) {
    const test::Rank rank(threads);
    const AdamWTensors c = tensors_of(100'003);
    update(c, kSettings);
    require_same_bits(c, expected);
  }
}

TEST_CASE("adamw: wrong arguments are named") {
  const test::Rank rank;
  const AdamWTensors c = tensors_of(4);
  const Tensor five = Tensor::zeros({5}, DType::f32), i32 = Tensor::zeros({4}, DType::i32),
               bf16 = Tensor::zeros({4}, DType::bf16);
  REQUIRE_THROWS_WITH(update({c.p, five, c.v, c.gradient}, kSettings),
                      Contains("adamw: p is f32 [4] and m is f32 [5]"));
  REQUIRE_THROWS_WITH(update({c.p, c.m, bf16, c.gradient}, kSettings),
                      Contains("v is bf16 [4]; its dtype must be f32"));
  const Tensor f16 = Tensor::zeros({4}, DType::f16);
  REQUIRE_THROWS_WITH(update({f16, c.m, c.v, c.gradient}, kSettings),
                      Contains("p is f16 [4]; its dtype must be f32 or bf16"));
  REQUIRE_THROWS_WITH(update({c.p, c.m, c.v, i32}, kSettings), Contains("gradient is i32 [4]"));
  REQUIRE_THROWS_WITH(update({c.p, c.m, c.m, c.gradient}, kSettings), Contains("m overlaps v"));
  REQUIRE_THROWS_WITH(update({c.p, c.m, Tensor(), c.gradient}, kSettings),
                      Contains("v is an undefined tensor"));
  const std::vector<AdamWTensors> mixed = {c, tensors_of(4, DType::bf16)};
  REQUIRE_THROWS_WITH(adamw(mixed, kSettings),
                      Contains("gradient is bf16 [4] and the first gradient is f32 [4]"));
  REQUIRE_THROWS_WITH(adamw(std::span(&c, 1), kSettings, five), Contains("gradient_scale"));
  REQUIRE_THROWS_WITH(adamw(std::span(&c, 1), kSettings, bf16.slice(0, 1)),
                      Contains("gradient_scale is bf16 [1]"));
  AdamWSettings settings = kSettings;
  settings.step = 0;
  REQUIRE_THROWS_WITH(update(c, settings), Contains("steps are counted from 1"));
  settings = kSettings;
  settings.beta2 = 1.0;
  REQUIRE_THROWS_WITH(update(c, settings), Contains("beta2 is 1"));
}

}  // namespace tessera
