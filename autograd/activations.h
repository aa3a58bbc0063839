// Small functions that the operations of the graph share.
#pragma once

#include <string_view>

#include "autograd/variable.h"
#include "runtime/tensor.h"

namespace tessera {

/// Uninitialized memory, charged to Category::activations.
Tensor activation(const Shape& shape, DType dtype);
/// The same, with x's shape and dtype.
Tensor like(const Tensor& x);

/// The tensor that a gradient is written to: x itself if this handle is its only owner, else new
/// memory like x. Inside a node's backward only.
Tensor reuse(const Tensor& x);

/// The node of sum = x + branch.
Variable added(const Tensor& sum, const Variable& x, const Variable& branch);

/// x [..., C] as [N, C]. Raises Error if x has no dimension.
Tensor as_rows(const Tensor& x);

/// The rows that `operation` adds to its result, or none. Raises Error unless they have its shape.
Tensor residual_rows(const Variable& residual, const Shape& result, std::string_view operation);

/// The gradient of a scalar result, f32 or f64, as double. Inside a node's backward only.
double scalar_gradient(const Tensor& dy);

}  // namespace tessera
