// One step of stochastic gradient descent on many flat ranges of parameters.
//
// The conventions are PyTorch's (torch.optim.SGD):
//
//   g = gradient_scale * gradient + weight_decay * p    (the last term if the range decays)
//   momentum = 0:  d = g
//   otherwise:     b = momentum b + g  (b = g on the first step)
//                  d = b, or g + momentum b with nesterov
//   p = p - learning_rate * d
//
//   p and b f32; gradient f32, bf16 or f16; equal element counts. All gradients of a call have one
//   dtype. b may be undefined if momentum = 0.
//
// The update is elementwise, with the same bits on every device. gradient_scale may be a tensor [1]
// f32; if it is not finite, the call changes nothing (see kernels/adamw/op.h).
#pragma once

#include <span>

#include "kernels/op.h"

namespace tessera {

/// The tensors of one parameter, or of a rank's part of it.
struct SgdTensors {
  Tensor p, b, gradient;
  /// Whether weight decay acts on p.
  bool decay = true;
};

struct SgdSettings {
  double learning_rate = 1e-2;
  double momentum = 0.0;
  bool nesterov = false;
  double weight_decay = 0.0;
  double gradient_scale = 1.0;
  bool first_step = false;
  /// The place of learning_rate in StepNumbers::learning_rates, for a graph.
  std::size_t optimizer = 0;
};

/// A defined `gradient_scale` replaces the setting of that name.
void sgd(std::span<const SgdTensors> parameters, const SgdSettings& settings,
         const Tensor& gradient_scale = {});

namespace cpu {
decltype(tessera::sgd) sgd;
}
namespace cuda {
decltype(tessera::sgd) sgd;
}

}  // namespace tessera
