// Gaussian error linear unit, tanh form, as in GPT-2.
//
// (Hendrycks, Gimpel 2016.)
//
//   y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
//
//   any shape; x is saved for backward; dx may be dy
#pragma once

#include "kernels/op.h"

namespace tessera {

void gelu_forward(Out y, const Tensor& x);
void gelu_backward(Out dx, const Tensor& dy, const Tensor& x);

namespace cpu {
decltype(tessera::gelu_forward) gelu_forward;
decltype(tessera::gelu_backward) gelu_backward;
}  // namespace cpu
namespace cuda {
decltype(tessera::gelu_forward) gelu_forward;
decltype(tessera::gelu_backward) gelu_backward;
}  // namespace cuda

}  // namespace tessera
