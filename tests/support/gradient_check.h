// Finite-difference checks of differentiable operations, in f64 on the CPU.
#pragma once

#include <catch2/catch.hpp>
#include <functional>
#include <numeric>
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

using Inputs = std::vector<Variable>;

inline Tensor leaf(const Shape& shape, const char* name = "leaf") {
  return normal_tensor(shape, DType::f64, name);
}

/// The gradients of `function`, from f64 leaves and parameters to a result, are those by central
/// differences. A result of several elements is projected on a fixed random direction.
inline void check_gradients(const std::vector<Tensor>& leaves,
                            const std::vector<OwnedParameter*>& parameters,
                            const std::function<Variable(const Inputs&)>& function) {
  // The truncation error is O(h^2), the rounding error about 1e-16 / h.
  constexpr double kTolerance = 1e-8, h = 1e-5;
  Inputs inputs;
  for (const Tensor& leaf : leaves) inputs.push_back(Variable::leaf(leaf));
  for (const OwnedParameter* owned : parameters) owned->parameter.reset_gradient();
  const Variable result = function(inputs);
  std::vector<double> direction(static_cast<std::size_t>(result.data().numel()), 1.0);
  const RandomStream random(3, "direction");
  for (std::size_t i = 0; direction.size() > 1 && i < direction.size(); ++i) {
    direction[i] = random.normal(i);
  }
  backward(result, direction.size() > 1 ? Tensor::from(direction, result.shape()) : Tensor());

  const auto projection = [&] {
    const NoGradient scope;
    const auto values = function(Inputs(leaves.begin(), leaves.end())).data().to_vector<double>();
    return std::inner_product(values.begin(), values.end(), direction.begin(), 0.0);
  };
  const auto check = [&](const Tensor& gradient, const Tensor& tensor) {
    std::vector<double> derivative;
    double* values = tensor.data<double>();
    for (std::int64_t i = 0; i < tensor.numel(); ++i) {
      const double original = values[i];
      values[i] = original + h;
      const double above = projection();
      values[i] = original - h;
      const double below = projection();
      values[i] = original;
      derivative.push_back((above - below) / (2.0 * h));
    }
    CHECK(relative_error(gradient.to_vector<double>(), derivative) < kTolerance);
  };
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    INFO("leaf " << i);
    check(inputs[i].gradient(), leaves[i]);
  }
  for (const OwnedParameter* owned : parameters) {
    INFO("parameter " << owned->parameter.name());
    REQUIRE(owned->parameter.has_gradient());
    check(owned->gradient, owned->data);
  }
}

}  // namespace tessera::test
