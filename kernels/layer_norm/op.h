// Layer normalization (Ba, Kiros, Hinton 2016), over the last dimension.
//
//   mean = sum(x) / C;  rstd = 1 / sqrt(sum((x - mean)^2) / C + epsilon)
//   y = (x - mean) * rstd * weight + bias
//
//   x, y [..., C] seen as [N, C]; weight, bias [C]; mean, rstd [N] f32 (f64 for f64), saved for
//   backward. With xhat = (x - mean) * rstd and g = dy * weight:
//   dx = rstd * (g - sum(g) / C - xhat * sum(g * xhat) / C)
//   dweight (+)= sum over rows of dy * xhat;  dbias (+)= sum over rows of dy
// dweight and dbias may be f32 beside 16-bit activations, and each may be an undefined tensor: a
// gradient that is not wanted.
#pragma once

#include "kernels/op.h"

namespace tessera {

void layer_norm_forward(Out y, Out mean, Out rstd, const Tensor& x, const Tensor& weight,
                        const Tensor& bias, float epsilon);
void layer_norm_backward(Out dx, Out dweight, Out dbias, const Tensor& dy, const Tensor& x,
                         const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                         Accumulate accumulate_parameters);

namespace cpu {
void layer_norm_forward(Out y, Out mean, Out rstd, const Tensor& x, const Tensor& weight,
                        const Tensor& bias, float epsilon);
void layer_norm_backward(Out dx, Out dweight, Out dbias, const Tensor& dy, const Tensor& x,
                         const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                         Accumulate accumulate_parameters);
}  // namespace cpu

}  // namespace tessera
