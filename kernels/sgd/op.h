// One step of stochastic gradient descent on a flat range of parameters, with PyTorch's
// conventions.
//
//   g = gradient_scale * gradient + weight_decay * p
//   momentum = 0:  d = g;   otherwise  b = momentum b + g  (b = g on the first step),
//   d = g + momentum b with nesterov, else b
//   p = p - learning_rate * d
//
//   p and b f32, gradient f32, bf16 or f16, equal element counts. b may be undefined if momentum =
//   0.
#pragma once

#include "kernels/op.h"

namespace tessera {

struct SgdSettings {
  double learning_rate = 1e-2;
  double momentum = 0.0;
  bool nesterov = false;
  double weight_decay = 0.0;
  double gradient_scale = 1.0;
  bool first_step = false;
};

void sgd(Out p, Out b, const Tensor& gradient, const SgdSettings& settings);

namespace cpu {
void sgd(Out p, Out b, const Tensor& gradient, const SgdSettings& settings);
}

}  // namespace tessera
