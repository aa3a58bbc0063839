// The factors of an SGD step as floats, the same on every device.
#pragma once

#include "kernels/sgd/op.h"

namespace tessera {

struct SgdFactors {
  explicit SgdFactors(const SgdSettings& s)
      : learning_rate(static_cast<float>(s.learning_rate)),
        momentum(static_cast<float>(s.momentum)),
        weight_decay(static_cast<float>(s.weight_decay)),
        gradient_scale(static_cast<float>(s.gradient_scale)),
        nesterov(s.nesterov),
        first_step(s.first_step) {}

  bool operator==(const SgdFactors&) const = default;

  float learning_rate;
  float momentum;
  float weight_decay;
  float gradient_scale;
  bool nesterov;
  bool first_step;
};

}  // namespace tessera
