#include "kernels/layer_norm/op.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "kernels/add/op.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::kPrecisions;
using test::normal_tensor;
using test::poisoned;
using test::relative_error;
using test::same_bits;
using test::to_doubles;
using Values = std::vector<double>;

constexpr float kEpsilon = 1e-5f;

// A layer_norm of random inputs, its results, and the same by the formulas in double.
struct Case {
  std::int64_t N, C;
  Tensor x, residual, weight, bias, dy, dsum;
  Tensor y, sum, mean, rstd, dx, dweight, dbias;

  Case(const Shape& shape, DType dtype, DType gradient_dtype)
      : N(shape.numel() / shape[-1]),
        C(shape[-1]),
        x(normal_tensor(shape, dtype, "x", 2.0)),
        residual(normal_tensor(shape, dtype, "residual")),
        weight(normal_tensor({C}, dtype, "weight")),
        bias(normal_tensor({C}, dtype, "bias")),
        dy(normal_tensor(shape, dtype, "dy")),
        dsum(normal_tensor(shape, dtype, "dsum")),
        y(poisoned(shape, dtype)),
        sum(poisoned(shape, dtype)),
        mean(poisoned({N}, statistics_dtype(dtype))),
        rstd(poisoned({N}, statistics_dtype(dtype))),
        dx(poisoned(shape, dtype)),
        dweight(normal_tensor({C}, gradient_dtype, "dweight")),
        dbias(normal_tensor({C}, gradient_dtype, "dbias")) {}

  void forward() const { layer_norm_forward(y, mean, rstd, x, weight, bias, kEpsilon); }
  void backward(Accumulate accumulate) const {
    layer_norm_backward(dx, dweight, dbias, dy, x, weight, mean, rstd, accumulate);
  }
  void add_forward() const {
    add_layer_norm_forward(y, sum, mean, rstd, x, residual, weight, bias, kEpsilon);
  }
  void add_backward(Accumulate accumulate) const {
    add_layer_norm_backward(dx, dweight, dbias, dy, dsum, sum, weight, mean, rstd, accumulate);
  }
  /// Moves every tensor of activations and parameters to where vectors of 16 bytes do not fit.
  void misalign() {
    for (Tensor* tensor :
         {&x, &residual, &weight, &bias, &dy, &dsum, &y, &sum, &dx, &dweight, &dbias}) {
      *tensor = test::unaligned(*tensor);
    }
  }
};

void require_same_results(const Case& a, const Case& b) {
  REQUIRE(same_bits(a.y, b.y));
  REQUIRE(same_bits(a.sum, b.sum));
  REQUIRE(same_bits(a.mean, b.mean));
  REQUIRE(same_bits(a.rstd, b.rstd));
  REQUIRE(same_bits(a.dx, b.dx));
  REQUIRE(same_bits(a.dweight, b.dweight));
  REQUIRE(same_bits(a.dbias, b.dbias));
}

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

// Widths on both sides of what a warp, a block and a block in one go take in.
const std::vector<Shape> kShapes = {
    {2, 3, 37}, {1, 2},    {65, 16},  {5, 768},  {7},       {9, 256},  {2, 257},  {3, 513},
    {2, 1024},  {9, 1025}, {9, 1536}, {2, 2056}, {2, 4100}, {1, 8192}, {3, 8200}, {2, 16391}};

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
      const double statistics_bound = dtype == DType::f64 ? 1e-13 : test::f32_sum_bound(c.C);
      REQUIRE(relative_error(to_doubles(c.mean), expected.mean) <= statistics_bound);
      REQUIRE(relative_error(to_doubles(c.rstd), expected.rstd) <= statistics_bound);
    }
  }
}

TEST_CASE("layer_norm: a mean that is large beside the spread does not spoil the variance") {
  const test::Rank rank;
  for (const Shape& shape : {Shape{4, 250}, Shape{2, 8200}}) {
    Case c(shape, DType::f32, DType::f32);
    Values far = to_doubles(c.x);
    for (double& value : far) value += 3000.0;
    c.x = test::tensor_of(far, shape, DType::f32);
    c.forward();
    // E[x^2] - mean^2 in f32 would be off by some 9e6 * 2^-24 = 0.5 of a variance of 4.
    REQUIRE(relative_error(to_doubles(c.rstd), Reference(c).rstd) <= 1e-5);
  }
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
        Case c(shape, dtype, gradient_dtype);
        c.dweight = poisoned({c.C}, gradient_dtype);
        c.dbias = poisoned({c.C}, gradient_dtype);
        c.forward();
        c.backward(Accumulate::no);
        const Reference expected(c);
        // A row of two columns cancels: dx is a small difference of large numbers.
        const double cancellation = shape == Shape{1, 2} && dtype != DType::f64 ? 1e-3 : 0.0;
        REQUIRE(relative_error(to_doubles(c.dx), expected.dx) <= bound + cancellation);
        const double parameter_bound =
            gradient_dtype == DType::f32 ? test::f32_sum_bound(c.C) : bound;
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

TEST_CASE("layer_norm: the same bits whoever works when") {
  const test::Rank owner;  // the tensors outlive the contexts of the schedules
  for (const Shape& shape : {Shape{300, 70}, Shape{20, 1100}, Shape{9, 8200}}) {
    const auto results = test::under_every_schedule([&] {
      Case c(shape, DType::bf16, DType::f32);
      c.add_forward();
      c.add_backward(Accumulate::yes);
      return c;
    });
    for (const Case& c : results) require_same_results(c, results[0]);
  }
}

TEST_CASE("layer_norm: the same bits wherever tensors lie") {
  const test::Rank rank;
  for (const auto& [dtype, bound] : kPrecisions) {
    for (const Shape& shape : {Shape{20, 40}, Shape{3, 320}, Shape{3, 768}, Shape{3, 1536},
                               Shape{2, 2560}, Shape{2, 8192}, Shape{2, 8320}}) {
      INFO(name_of(dtype) << " " << to_string(shape));
      const Case aligned(shape, dtype, dtype);
      Case moved(shape, dtype, dtype), bias_moved(shape, dtype, dtype);
      moved.misalign();
      bias_moved.bias = test::unaligned(bias_moved.bias);
      for (const Case* c : {&aligned, &std::as_const(moved), &std::as_const(bias_moved)}) {
        c->add_forward();
        c->add_backward(Accumulate::yes);
        require_same_results(*c, aligned);
      }
    }
  }
}

TEST_CASE("layer_norm: many rows") {
  const test::Rank rank;
  const Case c({4301, 5}, DType::f32, DType::f32);
  c.forward();
  c.backward(Accumulate::no);
  const Reference expected(c);
  REQUIRE(relative_error(to_doubles(c.y), expected.y) <= 2e-6);
  REQUIRE(relative_error(to_doubles(c.dx), expected.dx) <= 2e-6);
  REQUIRE(relative_error(to_doubles(c.dweight), expected.dweight) <= 2e-6);
  REQUIRE(relative_error(to_doubles(c.dbias), expected.dbias) <= 2e-6);
}

TEST_CASE("add_layer_norm: the bits of add, layer_norm and add") {
  const test::Rank rank;
  for (const auto& [dtype, bound] : kPrecisions) {
    for (const Shape& shape : {Shape{40, 33}, Shape{3, 768}, Shape{2, 2, 1600}, Shape{2, 8200}}) {
      INFO(name_of(dtype) << " " << to_string(shape));
      Case apart(shape, dtype, dtype);
      add(apart.sum, apart.x, apart.residual);
      layer_norm_forward(apart.y, apart.mean, apart.rstd, apart.sum, apart.weight, apart.bias,
                         kEpsilon);
      layer_norm_backward(apart.dx, apart.dweight, apart.dbias, apart.dy, apart.sum, apart.weight,
                          apart.mean, apart.rstd, Accumulate::yes);
      const Tensor dx_of_norm = apart.dx.clone();
      add(apart.dx, apart.dx, apart.dsum);

      Case over_x(shape, dtype, dtype), over_residual(shape, dtype, dtype);
      const Case fused(shape, dtype, dtype);
      over_x.sum = over_x.x;
      over_residual.sum = over_residual.residual;
      over_residual.dx = over_residual.dsum;
      for (const Case* c : {&fused, &std::as_const(over_x), &std::as_const(over_residual)}) {
        c->add_forward();
        c->add_backward(Accumulate::yes);
        require_same_results(*c, apart);
      }
      add_layer_norm_backward(fused.dx, {}, {}, fused.dy, {}, fused.sum, fused.weight, fused.mean,
                              fused.rstd, Accumulate::no);
      REQUIRE(same_bits(fused.dx, dx_of_norm));
    }
  }
}

TEST_CASE("layer_norm: no rows give zero parameter gradients") {
  const test::Rank rank;
  const Case c({0, 4}, DType::f32, DType::f32);
  c.forward();
  c.backward(Accumulate::no);
  REQUIRE(to_doubles(c.dweight) == Values(4, 0.0));
  REQUIRE(to_doubles(c.dbias) == Values(4, 0.0));
  c.dbias.copy_from(normal_tensor({4}, DType::f32, "dbias"));
  c.add_forward();
  c.add_backward(Accumulate::yes);
  REQUIRE(same_bits(c.dbias, normal_tensor({4}, DType::f32, "dbias")));
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

TEST_CASE("add_layer_norm: wrong arguments are named") {
  const test::Rank rank;
  const Case c({2, 4}, DType::bf16, DType::f32);
  const Tensor memory = Tensor::zeros({3, 4}, DType::bf16);
  const auto forward = [&](Out y, Out sum, const Tensor& x, const Tensor& residual) {
    add_layer_norm_forward(y, sum, c.mean, c.rstd, x, residual, c.weight, c.bias, kEpsilon);
  };
  const auto backward = [&](Out dx, const Tensor& dsum) {
    add_layer_norm_backward(dx, c.dweight, c.dbias, c.dy, dsum, c.sum, c.weight, c.mean, c.rstd,
                            Accumulate::no);
  };
  REQUIRE_THROWS_WITH(forward(c.y, c.sum, c.x, memory),
                      Contains("add_layer_norm_forward: residual is bf16 [3, 4] and x is"));
  REQUIRE_THROWS_WITH(forward(c.y, {}, c.x, c.residual), Contains("sum is no tensor"));
  REQUIRE_THROWS_WITH(forward(c.y, c.y, c.x, c.residual), Contains("y overlaps sum"));
  REQUIRE_THROWS_WITH(forward(c.residual, c.sum, c.x, c.residual), Contains("y overlaps residual"));
  REQUIRE_THROWS_WITH(forward(c.y, memory.slice(0, 2), memory.slice(1, 3), c.residual),
                      Contains("sum overlaps x in part"));
  REQUIRE_THROWS_WITH(backward(c.dx, memory),
                      Contains("add_layer_norm_backward: dsum is bf16 [3, 4] and sum is"));
  REQUIRE_THROWS_WITH(backward(c.dx, Tensor::zeros({2, 4}, DType::f32)),
                      Contains("dtypes must be equal"));
  REQUIRE_THROWS_WITH(backward(memory.slice(0, 2), memory.slice(1, 3)),
                      Contains("dx overlaps dsum in part"));
  REQUIRE_THROWS_WITH(backward(c.sum, c.dsum), Contains("dx overlaps sum"));
}

}  // namespace tessera
