#include "autograd/activations.h"

#include "autograd/engine.h"
#include "runtime/category.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {

Tensor activation(const Shape& shape, DType dtype) {
  const CategoryScope category(Category::activations);
  return Tensor::empty(shape, dtype);
}

Tensor like(const Tensor& x) {
  return activation(x.shape(), x.dtype());
}

Tensor reuse(const Tensor& x) {
  return is_sole_owner(x) ? x : like(x);
}

Variable added(const Tensor& sum, const Variable& x, const Variable& branch) {
  return differentiable(sum, {x, branch}, false, [](Tensor dsum) -> Gradients {
    return {dsum, dsum};
  });
}

Tensor as_rows(const Tensor& x) {
  check(x.rank() >= 1, "rows need at least one dimension, got {}", describe(x));
  const std::int64_t columns = x.size(-1);
  return x.reshape({columns == 0 ? 0 : x.numel() / columns, columns});
}

Tensor residual_rows(const Variable& residual, const Shape& result, std::string_view operation) {
  if (!residual.defined()) return {};
  if (residual.shape() != result) {
    fail("{}: the residual is {}; expected the result's shape, {}", operation,
         describe(residual.data()), to_string(result));
  }
  return as_rows(residual.data());
}

double scalar_gradient(const Tensor& dy) {
  if (gradient_is_known_one()) return 1.0;
  return dy.dtype() == DType::f64 ? dy.item<double>() : dy.item<float>();
}

}  // namespace tessera
