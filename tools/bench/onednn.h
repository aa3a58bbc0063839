// Matrix products by oneDNN, a baseline where the library is installed.
#pragma once

#include <functional>
#include <string>

#include "kernels/matmul/cpu/isa.h"
#include "models/transformer_shape.h"
#include "runtime/tensor.h"

namespace tessera {

/// A product c = op(a) op(b) by oneDNN with its own threads (OMP_NUM_THREADS), prepared once. The
/// tensors are f32 or bf16, and must live as long as the function. Empty in builds without oneDNN.
std::function<void()> onednn_product(const MatmulShape& shape, const Tensor& a, const Tensor& b,
                                     const Tensor& c);

/// "oneDNN 2.6.3 with amx instructions", and a remark where they are fewer than those of `isa`. Empty in
/// builds without oneDNN.
std::string describe_onednn(cpu::Isa isa);

}  // namespace tessera
