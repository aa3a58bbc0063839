// Problems for the tests of layer_norm and rms_norm, with one reference in double.
//
// rms_norm is layer_norm with mean 0 and without a bias: see NormReference.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "kernels/layer_norm/op.h"
#include "kernels/rms_norm/op.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {

enum class Norm { layer, rms };

inline constexpr float kNormEpsilon = 1e-5f;

/// Random inputs of a norm, and memory for its results. Under Norm::rms bias, mean and dbias are
/// undefined.
struct NormCase {
  Norm norm;
  std::int64_t N, C;
  float offset = 0.0f;  // of rms_norm
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
      rms_norm_forward(y, rstd, input, weight, kNormEpsilon, offset);
    }
  }
  void backward(Accumulate accumulate) const { backward_of(x, accumulate); }
  void backward_of(const Tensor& input, Accumulate accumulate) const {
    if (norm == Norm::layer) {
      layer_norm_backward(dx, dweight, dbias, dy, input, weight, mean, rstd, accumulate);
    } else {
      rms_norm_backward(dx, dweight, dy, input, weight, rstd, accumulate, offset);
    }
  }
  void add_forward() const {
    if (norm == Norm::layer) {
      add_layer_norm_forward(y, sum, mean, rstd, x, residual, weight, bias, kNormEpsilon);
    } else {
      add_rms_norm_forward(y, sum, rstd, x, residual, weight, kNormEpsilon, offset);
    }
  }
  void add_backward(Accumulate accumulate) const {
    if (norm == Norm::layer) {
      add_layer_norm_backward(dx, {}, dweight, dbias, dy, dsum, sum, weight, mean, rstd,
                              accumulate);
    } else {
      add_rms_norm_backward(dx, dweight, dy, dsum, sum, weight, rstd, accumulate, offset);
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

}  // namespace tessera::test
