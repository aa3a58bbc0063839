// Root-mean-square normalization over the last dimension, with or without a residual.
//
// (Zhang, Sennrich 2019.)
//
//   rstd = 1 / sqrt(sum(x^2) / C + epsilon);  y = x * rstd * (offset + weight)
//
//   x, y [..., C] seen as [N, C]; weight [C]; rstd [N] f32 (f64 for f64), saved for backward. With
//   xhat = x * rstd and g = dy * (offset + weight):
//
//   dx = rstd * (g - xhat * sum(g * xhat) / C);  dweight (+)= sum over rows of dy * xhat
//
// dweight may be f32 while activations have 16 bits. An undefined dweight is not computed. Gemma's offset
// is 1, that of the other models 0; the sum is not rounded.
//
// With a residual, in one pass over memory and with the bits of `add` followed by the norm:
//
//   sum = x + residual, rounded to its dtype;  y = rms_norm(sum)
//   backward: dx = (gradient of rms_norm at sum) + dsum, the gradient of both x and residual
//
// sum may be x or residual. dsum is the gradient of sum from other consumers; it may be dx or
// undefined.
#pragma once

#include "kernels/op.h"

namespace tessera {

void rms_norm_forward(Out y, Out rstd, const Tensor& x, const Tensor& weight, float epsilon,
                      float offset = 0.0f);
void rms_norm_backward(Out dx, Out dweight, const Tensor& dy, const Tensor& x, const Tensor& weight,
                       const Tensor& rstd, Accumulate accumulate_parameters, float offset = 0.0f);

void add_rms_norm_forward(Out y, Out sum, Out rstd, const Tensor& x, const Tensor& residual,
                          const Tensor& weight, float epsilon, float offset = 0.0f);
void add_rms_norm_backward(Out dx, Out dweight, const Tensor& dy, const Tensor& dsum,
                           const Tensor& sum, const Tensor& weight, const Tensor& rstd,
                           Accumulate accumulate_parameters, float offset = 0.0f);

// The backends compute the form with a residual. In the plain form sum, residual and dsum are
// undefined.
namespace cpu {
decltype(tessera::add_rms_norm_forward) rms_norm_forward;
decltype(tessera::add_rms_norm_backward) rms_norm_backward;
}  // namespace cpu
namespace cuda {
decltype(tessera::add_rms_norm_forward) rms_norm_forward;
decltype(tessera::add_rms_norm_backward) rms_norm_backward;
}  // namespace cuda

}  // namespace tessera
