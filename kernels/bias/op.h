// Adding a row vector to every row: y[n, c] += bias[c].
//
//   y [..., C] seen as [N, C], changed in place; bias [C]
//   backward: dbias[c] (+)= sum over n of dy[n, c]
//
// dbias may be f32 while dy has 16 bits.
#pragma once

#include "kernels/op.h"

namespace tessera {

void bias_forward(Out y, const Tensor& bias);
void bias_backward(Out dbias, const Tensor& dy, Accumulate accumulate);

namespace cpu {
decltype(tessera::bias_forward) bias_forward;
decltype(tessera::bias_backward) bias_backward;
}  // namespace cpu
namespace cuda {
decltype(tessera::bias_forward) bias_forward;
decltype(tessera::bias_backward) bias_backward;
}  // namespace cuda

}  // namespace tessera
