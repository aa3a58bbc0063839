// Linear layers, with the steps around the matrix product that a GPU fuses into it.
//
//   linear_forward          y = x W + b;  with a residual:  y = residual + x W + b
//   linear_gelu_forward     pre = x W + b,  y = gelu(pre)
//   linear_swiglu_forward   gate_up = x W + b,  y = silu(gate) * up, or with gelu in silu's place
//   linear_backward_input   dx = dy W^T;  if x = gelu(pre):  dpre = (dy W^T) * gelu'(pre)
//   swiglu_linear_backward_input   if x = swiglu(gate_up):  dx = dy W^T, and from it dgate_up
//   linear_backward_weight  dweight (+)= x^T dy,  dbias (+)= the sum of dy's rows
//
//   x [N, I], y and residual [N, O], W [I, O] = weight or, with Transpose::yes, weight [O, I]
//   transposed; bias [O] and residual may be undefined. gate_up has twice the columns of its swiglu:
//   gate, then up (swiglu/op.h). Saved for backward: x for the weight's gradient, pre for gelu's,
//   gate_up for swiglu's. dweight and dbias have x's dtype or, for a 16-bit x, f32. dweight is stored
//   as weight is; dbias may be undefined.
//
// These have the values of matmul, bias, gelu, swiglu and add one after the other. On the CPU they are
// one product, which does the other steps while its parts lie in the cache (matmul/cpu/steps.h). The
// bits are those of separate operations. On a GPU they are one product with an epilogue
// (kernels/cuda/gemm.h) where the library has it. Bias, gelu and residual then read the product before
// it is rounded, so 16-bit results differ from the separate operations in their last bit, and pre is
// the input of gelu, rounded. In f32 gelu is a separate operation: the epilogue's tanh is a hardware
// approximation. So is gelu's exact form: the library has no epilogue for it. swiglu, or its gradient, is the
// epilogue of our own product on Hopper (grouped_matmul/op.h) if there is no bias, the activation is silu and
// the rank has chosen it (matmul/options.h). So is gelu, of pre as it is rounded, if the rank has chosen that.
// dbias is bias_backward's: the library's epilogue would read dy again, too.
#pragma once

#include "kernels/gelu/op.h"
#include "kernels/op.h"
#include "kernels/swiglu/op.h"

namespace tessera {

void linear_forward(Out y, const Tensor& x, const Tensor& weight, Transpose transpose_weight,
                    const Tensor& bias, const Tensor& residual = {});
void linear_gelu_forward(Out y, Out pre, const Tensor& x, const Tensor& weight,
                         Transpose transpose_weight, const Tensor& bias,
                         GeluForm form = GeluForm::tanh);

/// gate_up is [N, O] and y [N, O / 2].
void linear_swiglu_forward(Out y, Out gate_up, const Tensor& x, const Tensor& weight,
                           Transpose transpose_weight, const Tensor& bias,
                           Gate activation = Gate::silu);

/// If x was gelu(pre), dx is the gradient of pre. Otherwise `pre` is undefined. *row_sums, if it is not null, becomes
/// f32 [L, I]: lines of sums of neighbouring rows of dx. It becomes undefined if the product does not have them.
void linear_backward_input(Out dx, const Tensor& dy, const Tensor& weight,
                           Transpose transpose_weight, const Tensor& pre = {},
                           GeluForm form = GeluForm::tanh, Tensor* row_sums = nullptr);
/// x [N, I] was swiglu(gate_up), and gate_up is [N, 2 I]. dgate_up may be gate_up itself. dx is a place for
/// the gradient of x on the way to dgate_up. Its contents are undefined afterwards: an epilogue needs no
/// place.
void swiglu_linear_backward_input(Out dgate_up, Out dx, const Tensor& dy, const Tensor& weight,
                                  Transpose transpose_weight, const Tensor& gate_up,
                                  Gate activation = Gate::silu);
void linear_backward_weight(Out dweight, Out dbias, const Tensor& x, const Tensor& dy,
                            Transpose transpose_weight, Accumulate accumulate_dweight,
                            Accumulate accumulate_dbias);

namespace cpu {
decltype(tessera::linear_forward) linear_forward;
decltype(tessera::linear_gelu_forward) linear_gelu_forward;
decltype(tessera::linear_swiglu_forward) linear_swiglu_forward;
void linear_backward_input(Out dx, const Tensor& dy, const Tensor& weight,
                           Transpose transpose_weight, const Tensor& pre, GeluForm form);
decltype(tessera::swiglu_linear_backward_input) swiglu_linear_backward_input;
decltype(tessera::linear_backward_weight) linear_backward_weight;
}  // namespace cpu
namespace cuda {
// As one product, with gelu in the form of tanh, and swiglu with silu. False, and nothing is done, if no
// product takes these arguments.
bool linear_forward(Out y, const Tensor& x, const Tensor& weight, Transpose transpose_weight,
                    const Tensor& bias, const Tensor& residual);
bool linear_gelu_forward(Out y, Out pre, const Tensor& x, const Tensor& weight,
                         Transpose transpose_weight, const Tensor& bias);
bool linear_swiglu_forward(Out y, Out gate_up, const Tensor& x, const Tensor& weight,
                           Transpose transpose_weight, const Tensor& bias);
bool linear_backward_input(Out dx, const Tensor& dy, const Tensor& weight,
                           Transpose transpose_weight, const Tensor& pre, Tensor* row_sums);
/// dx is not stored.
bool swiglu_linear_backward_input(Out dgate_up, const Tensor& dy, const Tensor& weight,
                                  Transpose transpose_weight, const Tensor& gate_up);
}  // namespace cuda

}  // namespace tessera
