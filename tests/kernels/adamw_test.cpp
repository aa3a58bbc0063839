#include "kernels/adamw/op.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

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
struct Case {
  Tensor p, m, v, gradient;

  explicit Case(std::int64_t count, DType gradient_dtype = DType::f32)
      : p(normal_tensor({count}, DType::f32, "p")),
        m(normal_tensor({count}, DType::f32, "m", 0.1)),
        v(normal_tensor({count}, DType::f32, "v", 0.2)),
        gradient(normal_tensor({count}, gradient_dtype, "gradient")) {
    for (std::int64_t i = 0; i < count; ++i) v.data<float>()[i] *= v.data<float>()[i];
  }

  void update(const AdamWSettings& settings) const { adamw(p, m, v, gradient, settings); }
};

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
    for (const std::int64_t count : {0, 1, 17, 1000, 70'001}) {
      INFO(name_of(dtype) << " " << count);
      const Case c(count, dtype);
      Values p = to_doubles(c.p), m = to_doubles(c.m), v = to_doubles(c.v);
      reference_update(p, m, v, to_doubles(c.gradient), kSettings);
      c.update(kSettings);
      REQUIRE(relative_error(to_doubles(c.p), p) <= 1e-7);
      REQUIRE(relative_error(to_doubles(c.m), m) <= 1e-7);
      REQUIRE(relative_error(to_doubles(c.v), v) <= 2e-7);
    }
  }
}

TEST_CASE("adamw: many steps from zero moments stay with the reference") {
  const test::Rank rank;
  const Case c(500);
  c.m.zero();
  c.v.zero();
  AdamWSettings settings = kSettings;
  settings.epsilon = 1e-8;
  Values p = to_doubles(c.p), m(500), v(500);
  for (settings.step = 1; settings.step <= 50; ++settings.step) {
    reference_update(p, m, v, to_doubles(c.gradient), settings);
    c.update(settings);
  }
  REQUIRE(relative_error(to_doubles(c.p), p) <= 1e-6);
}

TEST_CASE("adamw: the bias correction survives a million steps with beta2 near 1") {
  const test::Rank rank;
  const Case c(100);
  AdamWSettings settings = kSettings;
  settings.beta2 = 0.9999;
  for (const std::int64_t step : {std::int64_t{1}, std::int64_t{1'000'000}}) {
    settings.step = step;
    Values p = to_doubles(c.p), m = to_doubles(c.m), v = to_doubles(c.v);
    reference_update(p, m, v, to_doubles(c.gradient), settings);
    c.update(settings);
    REQUIRE(relative_error(to_doubles(c.p), p) <= 2e-7);
  }
}

TEST_CASE(
    "adamw: the first step moves each parameter by the learning rate, whatever the gradient") {
  const test::Rank rank;
  const Tensor p = Tensor::zeros({3}, DType::f32), m = Tensor::zeros({3}, DType::f32),
               v = Tensor::zeros({3}, DType::f32);
  const Tensor gradient = Tensor::from(std::vector<float>{1e-6f, -3.0f, 1e6f}, {3});
  adamw(p, m, v, gradient, {.learning_rate = 0.5, .epsilon = 0.0, .step = 1});
  REQUIRE(relative_error(to_doubles(p), {-0.5, 0.5, -0.5}) <= 3e-7);
}

TEST_CASE("adamw: a range gives the same bits whole or in pieces") {
  const test::Rank rank;
  constexpr std::int64_t kCount = 9001;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Case whole(kCount, dtype);
    whole.update(kSettings);
    for (const std::int64_t piece : {1, 3, 7, 16, 31, 1000}) {
      const Case pieces(kCount, dtype);
      for (std::int64_t begin = 0; begin < kCount; begin += piece) {
        const std::int64_t end = std::min(kCount, begin + piece);
        adamw(pieces.p.slice(begin, end), pieces.m.slice(begin, end), pieces.v.slice(begin, end),
              pieces.gradient.slice(begin, end), kSettings);
      }
      INFO(name_of(dtype) << " in pieces of " << piece);
      REQUIRE(same_bits(pieces.p, whole.p));
      REQUIRE(same_bits(pieces.m, whole.m));
      REQUIRE(same_bits(pieces.v, whole.v));
    }
  }
}

TEST_CASE("adamw: the same bits for any number of threads") {
  const test::Rank owner;
  const Case expected(100'003);
  expected.update(kSettings);
  for (const int threads : {1, 2, 3}) {
    const test::Rank rank(threads);
    const Case c(100'003);
    c.update(kSettings);
    REQUIRE(same_bits(c.p, expected.p));
    REQUIRE(same_bits(c.m, expected.m));
    REQUIRE(same_bits(c.v, expected.v));
  }
}

TEST_CASE("adamw: wrong arguments are named") {
  const test::Rank rank;
  const Case c(4);
  const Tensor five = Tensor::zeros({5}, DType::f32), f64 = Tensor::zeros({4}, DType::f64),
               bf16 = Tensor::zeros({4}, DType::bf16);
  REQUIRE_THROWS_WITH(adamw(c.p, five, c.v, c.gradient, kSettings),
                      Contains("adamw: p is f32 [4] and m is f32 [5]"));
  REQUIRE_THROWS_WITH(adamw(c.p, c.m, bf16, c.gradient, kSettings),
                      Contains("v is bf16 [4]; its dtype must be f32"));
  REQUIRE_THROWS_WITH(adamw(c.p, c.m, c.v, f64, kSettings), Contains("gradient is f64 [4]"));
  REQUIRE_THROWS_WITH(adamw(c.p, c.m, c.m, c.gradient, kSettings), Contains("m overlaps v"));
  REQUIRE_THROWS_WITH(adamw(c.p, c.m, Tensor(), c.gradient, kSettings), Contains("v is no tensor"));
  AdamWSettings settings = kSettings;
  settings.step = 0;
  REQUIRE_THROWS_WITH(c.update(settings), Contains("steps are counted from 1"));
  settings = kSettings;
  settings.beta2 = 1.0;
  REQUIRE_THROWS_WITH(c.update(settings), Contains("beta2 is 1"));
}

}  // namespace tessera
