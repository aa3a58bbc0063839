// The tests that layer_norm and rms_norm share: both against one reference in double.
//
// rms_norm is layer_norm with mean 0 and without a bias: see NormReference.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <initializer_list>
#include <utility>
#include <vector>

#include "kernels/add/op.h"
#include "kernels/layer_norm/op.h"
#include "kernels/rms_norm/op.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera::test {

enum class Norm { layer, rms };

inline constexpr float kNormEpsilon = 1e-5f;

/// Random inputs of a norm, and memory for its results. Under Norm::rms bias, mean and dbias are
/// undefined.
struct NormCase {
  Norm norm;
  std::int64_t N, C;
  Tensor x, residual, weight, bias, dy, dsum;
  Tensor y, sum, mean, rstd, dx, dweight, dbias;

  NormCase(Norm norm, const Shape& shape, DType dtype, DType gradient_dtype)
      : norm(norm),
        N(shape.numel() / shape[-1]),
        C(shape[-1]),
        x(normal_tensor(shape, dtype, "x", 2.0)),
        residual(normal_tensor(shape, dtype, "residual")),
        weight(normal_tensor({C}, dtype, "weight")),
        dy(normal_tensor(shape, dtype, "dy")),
        dsum(normal_tensor(shape, dtype, "dsum")),
        y(poisoned(shape, dtype)),
        sum(poisoned(shape, dtype)),
        rstd(poisoned({N}, statistics_dtype(dtype))),
        dx(poisoned(shape, dtype)),
        dweight(normal_tensor({C}, gradient_dtype, "dweight")) {
    if (norm == Norm::rms) return;
    bias = normal_tensor({C}, dtype, "bias");
    mean = poisoned({N}, statistics_dtype(dtype));
    dbias = normal_tensor({C}, gradient_dtype, "dbias");
  }

  void forward() const { forward_of(x); }
  void forward_of(const Tensor& input) const {
    if (norm == Norm::layer) {
      layer_norm_forward(y, mean, rstd, input, weight, bias, kNormEpsilon);
    } else {
      rms_norm_forward(y, rstd, input, weight, kNormEpsilon);
    }
  }
  void backward(Accumulate accumulate) const { backward_of(x, accumulate); }
  void backward_of(const Tensor& input, Accumulate accumulate) const {
    if (norm == Norm::layer) {
      layer_norm_backward(dx, dweight, dbias, dy, input, weight, mean, rstd, accumulate);
    } else {
      rms_norm_backward(dx, dweight, dy, input, weight, rstd, accumulate);
    }
  }
  void add_forward() const {
    if (norm == Norm::layer) {
      add_layer_norm_forward(y, sum, mean, rstd, x, residual, weight, bias, kNormEpsilon);
    } else {
      add_rms_norm_forward(y, sum, rstd, x, residual, weight, kNormEpsilon);
    }
  }
  void add_backward(Accumulate accumulate) const {
    if (norm == Norm::layer) {
      add_layer_norm_backward(dx, dweight, dbias, dy, dsum, sum, weight, mean, rstd, accumulate);
    } else {
      add_rms_norm_backward(dx, dweight, dy, dsum, sum, weight, rstd, accumulate);
    }
  }

  /// The parameters' gradients.
  std::vector<Tensor> parameter_gradients() const {
    return norm == Norm::layer ? std::vector{dweight, dbias} : std::vector{dweight};
  }
  void poison_parameter_gradients() const {
    for (const Tensor& gradient : parameter_gradients()) {
      gradient.copy_from(poisoned({C}, gradient.dtype()));
    }
  }
  /// Moves activations and parameters to addresses that 16-byte vectors cannot be read from.
  void misalign() {
    for (Tensor* tensor :
         {&x, &residual, &weight, &bias, &dy, &dsum, &y, &sum, &dx, &dweight, &dbias}) {
      if (tensor->defined()) *tensor = unaligned(*tensor);
    }
  }
};

inline void require_same_results(const NormCase& a, const NormCase& b) {
  const auto results = [](const NormCase& c) {
    return std::vector{c.y, c.sum, c.mean, c.rstd, c.dx, c.dweight, c.dbias};
  };
  const auto of_a = results(a), of_b = results(b);
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    CAPTURE(i);
    REQUIRE(of_a[i].defined() == of_b[i].defined());
    if (of_a[i].defined()) REQUIRE(same_bits(of_a[i], of_b[i]));
  }
}

/// The formulas of op.h in double. An rms norm is the case mean = 0, bias = 0 and without the term
/// sum(g) / C of dx, the derivative of the mean.
struct NormReference {
  std::vector<double> y, mean, rstd, dx;
  std::vector<std::vector<double>> parameter_gradients;

  explicit NormReference(const NormCase& c) : y(c.N * c.C), mean(c.N), rstd(c.N), dx(c.N * c.C) {
    const bool layer = c.norm == Norm::layer;
    const auto x = to_doubles(c.x), weight = to_doubles(c.weight), dy = to_doubles(c.dy);
    const auto bias = layer ? to_doubles(c.bias) : std::vector<double>(c.C);
    std::vector<double> dweight(c.C), dbias(c.C);
    const double C = static_cast<double>(c.C);
    for (std::int64_t n = 0; n < c.N; ++n) {
      const double* row = x.data() + n * c.C;
      for (std::int64_t j = 0; layer && j < c.C; ++j) mean[n] += row[j] / C;
      double variance = 0.0;
      for (std::int64_t j = 0; j < c.C; ++j) variance += std::pow(row[j] - mean[n], 2) / C;
      rstd[n] = 1.0 / std::sqrt(variance + static_cast<double>(kNormEpsilon));
      double sum_g = 0.0, sum_g_xhat = 0.0;
      for (std::int64_t j = 0; j < c.C; ++j) {
        const std::int64_t i = n * c.C + j;
        const double xhat = (row[j] - mean[n]) * rstd[n];
        y[i] = xhat * weight[j] + bias[j];
        dweight[j] += dy[i] * xhat;
        dbias[j] += dy[i];
        if (layer) sum_g += dy[i] * weight[j];
        sum_g_xhat += dy[i] * weight[j] * xhat;
      }
      for (std::int64_t j = 0; j < c.C; ++j) {
        const std::int64_t i = n * c.C + j;
        const double xhat = (row[j] - mean[n]) * rstd[n];
        dx[i] = rstd[n] * (dy[i] * weight[j] - sum_g / C - xhat * sum_g_xhat / C);
      }
    }
    parameter_gradients = {dweight};
    if (layer) parameter_gradients.push_back(dbias);
  }

  /// Compares with dweight and dbias.
  void require_parameter_gradients(const NormCase& c, double bound) const {
    const auto gradients = c.parameter_gradients();
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      CAPTURE(i);
      REQUIRE(relative_error(to_doubles(gradients[i]), parameter_gradients[i]) <= bound);
    }
  }
};

// Rows shorter and longer than the tile of a warp, of a block, and than one tile.
inline const std::vector<Shape> kNormShapes = {
    {2, 3, 37}, {1, 2},    {65, 16},  {5, 768},  {7},       {9, 256},  {2, 257},  {3, 513},
    {2, 1024},  {9, 1025}, {9, 1536}, {2, 2056}, {2, 4100}, {1, 8192}, {3, 8200}, {2, 16391}};

// ---- The checks, one for a test case of each norm

inline void check_forward(Norm norm) {
  const Rank rank;
  for (const auto& [dtype, bound] : kPrecisions) {
    for (const Shape& shape : kNormShapes) {
      INFO(name_of(dtype) << " " << to_string(shape));
      const NormCase c(norm, shape, dtype, dtype);
      c.forward();
      const NormReference expected(c);
      REQUIRE(relative_error(to_doubles(c.y), expected.y) <= bound);
      // Statistics are never rounded to 16 bits.
      const double statistics_bound = dtype == DType::f64 ? 1e-13 : f32_sum_bound(c.C);
      REQUIRE(relative_error(to_doubles(c.rstd), expected.rstd) <= statistics_bound);
      if (norm == Norm::layer) {
        REQUIRE(relative_error(to_doubles(c.mean), expected.mean) <= statistics_bound);
      }
    }
  }
}

inline void check_gradients(Norm norm) {
  const Rank rank;
  for (const auto& [dtype, bound] : kPrecisions) {
    for (const Shape& shape : kNormShapes) {
      for (const DType gradient_dtype : {dtype, statistics_dtype(dtype)}) {
        INFO(name_of(dtype) << " " << to_string(shape) << " " << name_of(gradient_dtype));
        const NormCase c(norm, shape, dtype, gradient_dtype);
        c.poison_parameter_gradients();
        c.forward();
        c.backward(Accumulate::no);
        const NormReference expected(c);
        // With a mean, a row of two columns cancels: dx is a small difference of large numbers.
        const bool cancels = norm == Norm::layer && shape == Shape{1, 2} && dtype != DType::f64;
        REQUIRE(relative_error(to_doubles(c.dx), expected.dx) <= bound + (cancels ? 1e-3 : 0.0));
        expected.require_parameter_gradients(
            c, gradient_dtype == DType::f32 ? f32_sum_bound(c.C) : bound);
      }
    }
  }
}

inline void check_accumulation(Norm norm) {
  const Rank rank;
  const NormCase c(norm, {40, 33}, DType::bf16, DType::f32);
  c.forward();
  const NormReference expected(c);
  NormReference sums = expected;
  const auto gradients = c.parameter_gradients();
  for (std::size_t g = 0; g < gradients.size(); ++g) {
    const auto before = to_doubles(gradients[g]);
    for (std::size_t i = 0; i < before.size(); ++i) sums.parameter_gradients[g][i] += before[i];
  }
  c.backward(Accumulate::yes);
  sums.require_parameter_gradients(c, 2e-6);

  c.poison_parameter_gradients();
  c.backward(Accumulate::no);
  expected.require_parameter_gradients(c, 2e-6);
}

inline void check_schedules(Norm norm) {
  const Rank owner;  // the tensors outlive the contexts of the schedules
  for (const Shape& shape : {Shape{300, 70}, Shape{20, 1100}, Shape{9, 8200}}) {
    const auto results = under_every_schedule([&] {
      const NormCase c(norm, shape, DType::bf16, DType::f32);
      c.add_forward();
      c.add_backward(Accumulate::yes);
      return c;
    });
    for (const NormCase& c : results) require_same_results(c, results[0]);
  }
}

inline void check_alignment(Norm norm) {
  const Rank rank;
  for (const auto& [dtype, bound] : kPrecisions) {
    for (const Shape& shape : {Shape{20, 40}, Shape{3, 320}, Shape{3, 768}, Shape{3, 1536},
                               Shape{2, 2560}, Shape{2, 8192}, Shape{2, 8320}}) {
      INFO(name_of(dtype) << " " << to_string(shape));
      const NormCase aligned(norm, shape, dtype, dtype);
      NormCase moved(norm, shape, dtype, dtype), parameter_moved(norm, shape, dtype, dtype);
      moved.misalign();
      Tensor& parameter = norm == Norm::layer ? parameter_moved.bias : parameter_moved.weight;
      parameter = unaligned(parameter);
      for (const NormCase* c : {&aligned, &std::as_const(moved), &std::as_const(parameter_moved)}) {
        c->add_forward();
        c->add_backward(Accumulate::yes);
        require_same_results(*c, aligned);
      }
    }
  }
}

/// Many rows for the teams that are warps and for those that are blocks. The bound of a sum over
/// rows grows with the root of their number, as that of a sum over columns does.
inline void check_many_rows(Norm norm) {
  const Rank rank;
  const auto check_shape = [&](const Shape& shape, DType dtype, double bound) {
    INFO(name_of(dtype) << " " << to_string(shape));
    const NormCase c(norm, shape, dtype, DType::f32);
    c.forward();
    c.backward(Accumulate::no);
    const NormReference expected(c);
    REQUIRE(relative_error(to_doubles(c.y), expected.y) <= bound);
    REQUIRE(relative_error(to_doubles(c.dx), expected.dx) <= bound);
    expected.require_parameter_gradients(c, f32_sum_bound(c.N));
  };
  check_shape({4301, 5}, DType::f32, 2e-6);
  check_shape({301, 1100}, DType::bf16, 0x1p-8);
}

inline void check_residual(Norm norm) {
  const Rank rank;
  for (const auto& [dtype, bound] : kPrecisions) {
    for (const Shape& shape : {Shape{40, 33}, Shape{3, 768}, Shape{2, 2, 1600}, Shape{2, 8200}}) {
      INFO(name_of(dtype) << " " << to_string(shape));
      const NormCase separate(norm, shape, dtype, dtype);
      add(separate.sum, separate.x, separate.residual);
      separate.forward_of(separate.sum);
      separate.backward_of(separate.sum, Accumulate::yes);
      const Tensor dx_of_norm = separate.dx.clone();
      add(separate.dx, separate.dx, separate.dsum);

      NormCase over_x(norm, shape, dtype, dtype), over_residual(norm, shape, dtype, dtype);
      NormCase fused(norm, shape, dtype, dtype);
      over_x.sum = over_x.x;
      over_residual.sum = over_residual.residual;
      over_residual.dx = over_residual.dsum;
      for (const NormCase* c : {&fused, &over_x, &over_residual}) {
        c->add_forward();
        c->add_backward(Accumulate::yes);
        require_same_results(*c, separate);
      }
      fused.dsum = fused.dweight = fused.dbias = {};
      fused.add_backward(Accumulate::no);
      REQUIRE(same_bits(fused.dx, dx_of_norm));
    }
  }
}

inline void check_no_rows(Norm norm) {
  const Rank rank;
  const NormCase c(norm, {0, 4}, DType::f32, DType::f32);
  c.forward();
  c.backward(Accumulate::no);
  for (const Tensor& gradient : c.parameter_gradients()) {
    REQUIRE(to_doubles(gradient) == std::vector<double>(4, 0.0));
    gradient.copy_from(normal_tensor({4}, DType::f32, "before"));
  }
  c.add_forward();
  c.add_backward(Accumulate::yes);
  for (const Tensor& gradient : c.parameter_gradients()) {
    REQUIRE(same_bits(gradient, normal_tensor({4}, DType::f32, "before")));
  }
}

inline void check_undefined_gradients(Norm norm) {
  const Rank rank;
  const NormCase all(norm, {40, 33}, DType::bf16, DType::f32);
  all.forward();
  all.backward(Accumulate::no);
  for (const bool with_weight : {false, true}) {
    for (const bool with_bias : {false, true}) {
      NormCase some(norm, {40, 33}, DType::bf16, DType::f32);
      some.forward();
      if (!with_weight) some.dweight = {};
      if (!with_bias) some.dbias = {};
      some.backward(Accumulate::no);
      CHECK(same_bits(some.dx, all.dx));
      if (some.dweight.defined()) CHECK(same_bits(some.dweight, all.dweight));
      if (some.dbias.defined()) CHECK(same_bits(some.dbias, all.dbias));
    }
  }
}

}  // namespace tessera::test
