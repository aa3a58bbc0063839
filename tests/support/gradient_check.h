// Finite-difference checks of differentiable operations, in f64 on the CPU.
#pragma once

#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <vector>

#include "autograd/engine.h"
#include "autograd/parameter.h"
#include "autograd/variable.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {

/// A parameter with open windows, filled with normal values.
struct OwnedParameter {
  OwnedParameter(const std::string& name, const Shape& shape, double scale = 1.0,
                 DType dtype = DType::f64)
      : parameter(name, shape, Initializer::zeros()),
        data(normal_tensor(shape, dtype, name, scale)),
        gradient(poisoned(shape, dtype)) {  // the first contribution has to overwrite
    parameter.open(data);
    parameter.open_gradient(gradient);
    parameter.reset_gradient();
  }

  Parameter parameter;
  Tensor data;
  Tensor gradient;
};

/// The differentiated function: from leaves (f64 tensors) and parameters to a result.
struct GradientCheck {
  std::function<Variable(const std::vector<Variable>&)> function;
  std::vector<Tensor> leaves;
  std::vector<OwnedParameter*> parameters;

  /// The result's projection on a fixed random direction (or the result itself if it has one
  /// element), without a graph.
  double value() const {
    const NoGradient scope;
    std::vector<Variable> inputs;
    for (const Tensor& leaf : leaves) inputs.emplace_back(leaf);
    const auto result = function(inputs).data().to_vector<double>();
    if (result.size() == 1) return result[0];
    const RandomStream direction(3, "direction");
    double sum = 0.0;
    for (std::size_t i = 0; i < result.size(); ++i) sum += result[i] * direction.normal(i);
    return sum;
  }

  /// Derivative of value() with respect to every element of `tensor`, by central differences of
  /// step h: the truncation error is O(h^2), the rounding error about 1e-16 / h.
  std::vector<double> numerical(const Tensor& tensor) const {
    constexpr double h = 1e-5;
    std::vector<double> derivative;
    double* values = tensor.data<double>();
    for (std::int64_t i = 0; i < tensor.numel(); ++i) {
      const double original = values[i];
      values[i] = original + h;
      const double above = value();
      values[i] = original - h;
      const double below = value();
      values[i] = original;
      derivative.push_back((above - below) / (2.0 * h));
    }
    return derivative;
  }

  void run(double tolerance = 1e-8) const {
    std::vector<Variable> inputs;
    for (const Tensor& leaf : leaves) inputs.push_back(Variable::leaf(leaf));
    for (const OwnedParameter* owned : parameters) owned->parameter.reset_gradient();
    const Variable result = function(inputs);
    Tensor seed;
    if (result.data().numel() > 1) {
      const RandomStream direction(3, "direction");
      std::vector<double> values;
      for (std::int64_t i = 0; i < result.data().numel(); ++i) {
        values.push_back(direction.normal(static_cast<std::uint64_t>(i)));
      }
      seed = Tensor::from(values, result.shape());
    }
    backward(result, seed);
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      INFO("leaf " << i);
      CHECK(relative_error(inputs[i].gradient().to_vector<double>(), numerical(leaves[i])) <
            tolerance);
    }
    for (const OwnedParameter* owned : parameters) {
      INFO("parameter " << owned->parameter.name());
      REQUIRE(owned->parameter.has_gradient());
      CHECK(relative_error(owned->gradient.to_vector<double>(), numerical(owned->data)) <
            tolerance);
    }
  }
};

}  // namespace tessera::test
