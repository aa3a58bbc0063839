// One AdamW update (Loshchilov, Hutter 2019: decoupled weight decay) of a flat range of parameters.
//
//   g = gradient_scale * gradient
//   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//   p = p - learning_rate * weight_decay * p
//         - learning_rate * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
//
//   p, m, v f32, gradient f32, bf16 or f16, equal element counts. All four are read and p, m, v
//   written in one pass. Elementwise: a range gives the same bits whole or in pieces.
#pragma once

#include "kernels/op.h"

namespace tessera {

struct AdamWSettings {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  /// Multiplies the gradient first: clipping and unscaling.
  double gradient_scale = 1.0;
  /// t, counted from 1.
  std::int64_t step = 1;
};

void adamw(Out p, Out m, Out v, const Tensor& gradient, const AdamWSettings& settings);

namespace cpu {
void adamw(Out p, Out m, Out v, const Tensor& gradient, const AdamWSettings& settings);
}

}  // namespace tessera
