// Operands for timing kernels and matrix products.
#pragma once

#include "models/transformer_shape.h"
#include "runtime/tensor.h"

namespace tessera {

/// Uniform values in [-1/2, 1/2), repeated after a million elements, on the current context's
/// device; f32 or 16-bit. Zeros would flatter some machines: few bits change, so a GPU clocks
/// higher.
Tensor noise(const Shape& shape, DType dtype);

/// The operands of a product c = op(a) op(b): noise in `dtype`, and zeros.
struct MatmulOperands {
  Tensor a, b, c;
};
MatmulOperands operands_of(const MatmulShape& shape, DType dtype, DType dtype_of_c);

}  // namespace tessera
