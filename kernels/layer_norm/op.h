// Layer normalization over the last dimension, with or without a residual.
//
// (Ba, Kiros, Hinton 2016.)
//
//   mean = sum(x) / C;  rstd = 1 / sqrt(sum((x - mean)^2) / C + epsilon)
//   y = (x - mean) * rstd * weight + bias
//
//   x, y [..., C] seen as [N, C]; weight, bias [C]; mean, rstd [N] f32 (f64 for f64), saved for
//   backward. With xhat = (x - mean) * rstd and g = dy * weight:
//
//   dx = rstd * (g - sum(g) / C - xhat * sum(g * xhat) / C)
//   dweight (+)= sum over rows of dy * xhat;  dbias (+)= sum over rows of dy
//
// dweight and dbias may be f32 while activations have 16 bits. An undefined dweight or dbias is not
// computed.
//
// With a residual, in one pass over memory and with the bits of `add` followed by the norm:
//
//   sum = x + residual, rounded to its dtype;  y = layer_norm(sum)
//   backward: dx = (gradient of layer_norm at sum) + dsum, the gradient of both x and residual
//
// sum may be x or residual. dsum is the gradient of sum from other consumers; it may be dx or
// undefined. dx_total [C], of the statistics' dtype, is the sum of dx's rows with the bits of
// bias_backward. It is the gradient of a bias that made x, and spares a pass over dx on a GPU. It may
// be undefined.
#pragma once

#include "kernels/op.h"

namespace tessera {

void layer_norm_forward(Out y, Out mean, Out rstd, const Tensor& x, const Tensor& weight,
                        const Tensor& bias, float epsilon);
void layer_norm_backward(Out dx, Out dweight, Out dbias, const Tensor& dy, const Tensor& x,
                         const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                         Accumulate accumulate_parameters);

void add_layer_norm_forward(Out y, Out sum, Out mean, Out rstd, const Tensor& x,
                            const Tensor& residual, const Tensor& weight, const Tensor& bias,
                            float epsilon);
void add_layer_norm_backward(Out dx, Out dx_total, Out dweight, Out dbias, const Tensor& dy,
                             const Tensor& dsum, const Tensor& sum, const Tensor& weight,
                             const Tensor& mean, const Tensor& rstd,
                             Accumulate accumulate_parameters);

// The backends compute the form with a residual. In the plain form sum, residual, dsum and dx_total
// are undefined.
namespace cpu {
decltype(tessera::add_layer_norm_forward) layer_norm_forward;
decltype(tessera::add_layer_norm_backward) layer_norm_backward;
}  // namespace cpu
namespace cuda {
decltype(tessera::add_layer_norm_forward) layer_norm_forward;
decltype(tessera::add_layer_norm_backward) layer_norm_backward;
}  // namespace cuda

}  // namespace tessera
