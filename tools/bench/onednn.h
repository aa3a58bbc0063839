// Matrix products by oneDNN, a baseline where the library is installed.
#pragma once

#include <functional>

#include "models/transformer_shape.h"
#include "runtime/tensor.h"

namespace tessera {

/// A product c = op(a) op(b) by oneDNN with its own threads (OMP_NUM_THREADS), prepared once. The
/// tensors are f32 or bf16, and must live as long as the function. Empty in builds without oneDNN.
std::function<void()> onednn_product(const MatmulShape& shape, const Tensor& a, const Tensor& b,
                                     const Tensor& c);

}  // namespace tessera
