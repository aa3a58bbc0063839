#include "kernels/layer_norm/op.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::kPrecisions;
using test::normal_tensor;
using test::relative_error;
using test::same_bits;
using test::to_doubles;
using Values = std::vector<double>;

constexpr float kEpsilon = 1e-5f;

// A layer_norm of random inputs, its results, and the same by the formulas in double.
struct Case {
  std::int64_t N, C;
  Tensor x, weight, bias, dy;
  Tensor y, mean, rstd, dx, dweight, dbias;

  Case(const Shape& shape, DType dtype, DType gradient_dtype)
      : N(shape.numel() / shape[-1]),
        C(shape[-1]),
        x(normal_tensor(shape, dtype, "x", 2.0)),
        weight(normal_tensor({C}, dtype, "weight")),
        bias(normal_tensor({C}, dtype, "bias")),
        dy(normal_tensor(shape, dtype, "dy")),
        y(Tensor::empty(shape, dtype)),
        mean(Tensor::empty({N}, statistics_dtype(dtype))),
        rstd(Tensor::empty({N}, statistics_dtype(dtype))),
        dx(Tensor::empty(shape, dtype)),
        dweight(normal_tensor({C}, gradient_dtype, "dweight")),
        dbias(normal_tensor({C}, gradient_dtype, "dbias")) {}

  void forward() const { layer_norm_forward(y, mean, rstd, x, weight, bias, kEpsilon); }
  void backward(Accumulate accumulate) const {
    layer_norm_backward(dx, dweight, dbias, dy, x, weight, mean, rstd, accumulate);
  }
};

struct Reference {
  Values y, mean, rstd, dx, dweight, dbias;

  explicit Reference(const Case& c)
      : y(c.N * c.C), mean(c.N), rstd(c.N), dx(c.N * c.C), dweight(c.C), dbias(c.C) {
    const Values x = to_doubles(c.x), weight = to_doubles(c.weight), bias = to_doubles(c.bias),
                 dy = to_doubles(c.dy);
    const double C = static_cast<double>(c.C);
    for (std::int64_t n = 0; n < c.N; ++n) {
      const double* row = x.data() + n * c.C;
      for (std::int64_t j = 0; j < c.C; ++j) mean[n] += row[j] / C;
      double variance = 0.0;
      for (std::int64_t j = 0; j < c.C; ++j) variance += std::pow(row[j] - mean[n], 2) / C;
      rstd[n] = 1.0 / std::sqrt(variance + static_cast<double>(kEpsilon));
      double sum_g = 0.0, sum_g_xhat = 0.0;
      for (std::int64_t j = 0; j < c.C; ++j) {
        const std::int64_t i = n * c.C + j;
        const double xhat = (row[j] - mean[n]) * rstd[n];
        y[i] = xhat * weight[j] + bias[j];
        dweight[j] += dy[i] * xhat;
        dbias[j] += dy[i];
        sum_g += dy[i] * weight[j];
        sum_g_xhat += dy[i] * weight[j] * xhat;
      }
      for (std::int64_t j = 0; j < c.C; ++j) {
        const std::int64_t i = n * c.C + j;
        const double xhat = (row[j] - mean[n]) * rstd[n];
        dx[i] = rstd[n] * (dy[i] * weight[j] - sum_g / C - xhat * sum_g_xhat / C);
      }
    }
  }
};

const std::vector<Shape> kShapes = {{2, 3, 37}, {1, 2}, {65, 16}, {5, 768}, {7}};

}  // namespace

TEST_CASE("layer_norm: y and the saved statistics follow the definition") {
  const test::Rank rank;
  for (const auto& [dtype, bound] : kPrecisions) {
    for (const Shape& shape : kShapes) {
      INFO(name_of(dtype) << " " << to_string(shape));
      const Case c(shape, dtype, dtype);
      c.forward();
      const Reference expected(c);
      REQUIRE(relative_error(to_doubles(c.y), expected.y) <= bound);
      // Statistics are never rounded to 16 bits.
      const double statistics_bound = dtype == DType::f64 ? 1e-13 : 2e-6;
      REQUIRE(relative_error(to_doubles(c.mean), expected.mean) <= statistics_bound);
      REQUIRE(relative_error(to_doubles(c.rstd), expected.rstd) <= statistics_bound);
    }
  }
}

TEST_CASE("layer_norm: a mean that is large beside the spread does not spoil the variance") {
  const test::Rank rank;
  const Case c({4, 256}, DType::f32, DType::f32);
  for (std::int64_t i = 0; i < c.x.numel(); ++i) c.x.data<float>()[i] += 3000.0f;
  c.forward();
  // E[x^2] - mean^2 in f32 would be off by some 9e6 * 2^-24 = 0.5 of a variance of 4.
  REQUIRE(relative_error(to_doubles(c.rstd), Reference(c).rstd) <= 1e-5);
}

TEST_CASE("layer_norm: one column gives the bias and no gradient to x") {
  const test::Rank rank;
  const Case c({3, 1}, DType::f32, DType::f32);
  c.forward();
  c.backward(Accumulate::no);
  const double bias = to_doubles(c.bias)[0];
  REQUIRE(to_doubles(c.y) == Values(3, bias));
  // Zero to the rounding of g, which rstd = 1 / sqrt(epsilon) enlarges.
  for (const double dx : to_doubles(c.dx)) REQUIRE(std::fabs(dx) <= 316.3 * 4.0 * 0x1p-24);
}

TEST_CASE("layer_norm: gradients follow the formulas") {
  const test::Rank rank;
  for (const auto& [dtype, bound] : kPrecisions) {
    for (const Shape& shape : kShapes) {
      for (const DType gradient_dtype : {dtype, statistics_dtype(dtype)}) {
        INFO(name_of(dtype) << " " << to_string(shape) << " " << name_of(gradient_dtype));
        const Case c(shape, dtype, gradient_dtype);
        c.forward();
        c.backward(Accumulate::no);
        const Reference expected(c);
        // A row of two columns cancels: dx is a small difference of large numbers.
        const double cancellation = shape == Shape{1, 2} && dtype != DType::f64 ? 1e-3 : 0.0;
        REQUIRE(relative_error(to_doubles(c.dx), expected.dx) <= bound + cancellation);
        const double parameter_bound = gradient_dtype == DType::f32 ? 2e-6 : bound;
        REQUIRE(relative_error(to_doubles(c.dweight), expected.dweight) <= parameter_bound);
        REQUIRE(relative_error(to_doubles(c.dbias), expected.dbias) <= parameter_bound);
      }
    }
  }
}

TEST_CASE("layer_norm: parameter gradients are overwritten or added to") {
  const test::Rank rank;
  const Case c({40, 33}, DType::bf16, DType::f32);
  c.forward();
  const Reference expected(c);
  const Values before = to_doubles(c.dweight);
  c.backward(Accumulate::yes);
  Values sum = expected.dweight;
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += before[i];
  REQUIRE(relative_error(to_doubles(c.dweight), sum) <= 2e-6);

  c.dweight.copy_from(test::poisoned({c.C}, DType::f32));
  c.dbias.copy_from(test::poisoned({c.C}, DType::f32));
  c.backward(Accumulate::no);
  REQUIRE(relative_error(to_doubles(c.dweight), expected.dweight) <= 2e-6);
  REQUIRE(relative_error(to_doubles(c.dbias), expected.dbias) <= 2e-6);
}

TEST_CASE("layer_norm: the same bits for any number of threads") {
  std::vector<Tensor> first;
  const test::Rank owner;  // the tensors outlive the contexts of the loop
  for (const int threads : {1, 2, 3}) {
    const test::Rank rank(threads);
    const Case c({1200, 300}, DType::f32, DType::f32);
    c.forward();
    c.backward(Accumulate::yes);
    const std::vector<Tensor> results = {c.y, c.mean, c.rstd, c.dx, c.dweight, c.dbias};
    if (first.empty()) first = results;
    for (std::size_t i = 0; i < results.size(); ++i) REQUIRE(same_bits(results[i], first[i]));
  }
}

TEST_CASE("layer_norm: no rows give zero parameter gradients") {
  const test::Rank rank;
  const Case c({0, 4}, DType::f32, DType::f32);
  c.forward();
  c.backward(Accumulate::no);
  REQUIRE(to_doubles(c.dweight) == Values(4, 0.0));
  REQUIRE(to_doubles(c.dbias) == Values(4, 0.0));
}

TEST_CASE("layer_norm: a parameter gradient that is not wanted changes no bit of the others") {
  const test::Rank rank;
  const Case all({40, 33}, DType::bf16, DType::f32);
  all.forward();
  all.backward(Accumulate::no);
  for (const bool with_weight : {false, true}) {
    for (const bool with_bias : {false, true}) {
      Case some({40, 33}, DType::bf16, DType::f32);
      some.forward();
      if (!with_weight) some.dweight = {};
      if (!with_bias) some.dbias = {};
      some.backward(Accumulate::no);
      CHECK(same_bits(some.dx, all.dx));
      if (with_weight) CHECK(same_bits(some.dweight, all.dweight));
      if (with_bias) CHECK(same_bits(some.dbias, all.dbias));
    }
  }
}

TEST_CASE("layer_norm: wrong arguments are named") {
  const test::Rank rank;
  const Case c({2, 4}, DType::bf16, DType::f32);
  const Tensor f32 = Tensor::zeros({2, 4}, DType::f32);
  const Tensor five = Tensor::zeros({5}, DType::bf16);
  const Tensor none = Tensor::zeros({2, 0}, DType::bf16);
  REQUIRE_THROWS_WITH(layer_norm_forward(f32, c.mean, c.rstd, c.x, c.weight, c.bias, kEpsilon),
                      Contains("layer_norm_forward: x is bf16 [2, 4] and y is f32 [2, 4]"));
  REQUIRE_THROWS_WITH(layer_norm_forward(c.y, c.mean, c.rstd, c.x, five, c.bias, kEpsilon),
                      Contains("weight is bf16 [5]; its shape must be [4]"));
  REQUIRE_THROWS_WITH(layer_norm_forward(none, c.mean, c.rstd, none, c.weight, c.bias, kEpsilon),
                      Contains("last dimension must not be empty"));
  REQUIRE_THROWS_WITH(layer_norm_forward(c.x, c.mean, c.rstd, c.x, c.weight, c.bias, kEpsilon),
                      Contains("y overlaps x"));
  REQUIRE_THROWS_WITH(layer_norm_forward(c.y, c.dweight, c.rstd, c.x, c.weight, c.bias, kEpsilon),
                      Contains("mean is f32 [4]; its shape must be [2]"));
  REQUIRE_THROWS_WITH(layer_norm_backward(c.dx, c.dweight, five, c.dy, c.x, c.weight, c.mean,
                                          c.rstd, Accumulate::no),
                      Contains("dbias is bf16 [5]; its shape must be [4]"));
  REQUIRE_THROWS_WITH(layer_norm_backward(c.dy, c.dweight, c.dbias, c.dy, c.x, c.weight, c.mean,
                                          c.rstd, Accumulate::no),
                      Contains("dx overlaps dy"));
}

}  // namespace tessera
