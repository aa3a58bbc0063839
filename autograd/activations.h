// Small functions that the operations of the graph share.
#pragma once

#include "runtime/tensor.h"

namespace tessera {

/// Uninitialized memory, charged to Category::activations.
Tensor activation(const Shape& shape, DType dtype);
/// The same, with x's shape and dtype.
Tensor like(const Tensor& x);

/// x [..., C] as [N, C]. Raises Error if x has no dimension.
Tensor as_rows(const Tensor& x);

/// The gradient of a scalar result, f32 or f64, as double. Inside a node's backward only.
double scalar_gradient(const Tensor& dy);

}  // namespace tessera
