// The factors of an AdamW update as floats, the same on every device.
#pragma once

#include <cmath>

#include "kernels/adamw/op.h"
#include "runtime/elementary.h"

namespace tessera {

/// Each factor is computed in double and rounded once: 1 - beta^t and learning_rate * weight_decay
/// lose too many digits in float.
struct AdamWFactors {
  explicit AdamWFactors(const AdamWSettings& s)
      : gradient_scale(static_cast<float>(s.gradient_scale)),
        beta1(static_cast<float>(s.beta1)),
        beta1_rest(static_cast<float>(1.0 - s.beta1)),
        beta2(static_cast<float>(s.beta2)),
        beta2_rest(static_cast<float>(1.0 - s.beta2)),
        step_size(static_cast<float>(s.learning_rate / (1.0 - power(s.beta1, s.step)))),
        root_scale(static_cast<float>(1.0 / std::sqrt(1.0 - power(s.beta2, s.step)))),
        epsilon(static_cast<float>(s.epsilon)),
        decay(static_cast<float>(s.learning_rate * s.weight_decay)) {}

  bool operator==(const AdamWFactors&) const = default;

  float gradient_scale;
  float beta1, beta1_rest;
  float beta2, beta2_rest;
  float step_size;   // learning_rate / (1 - beta1^t)
  float root_scale;  // sqrt(v) * root_scale = sqrt(v / (1 - beta2^t))
  float epsilon;
  float decay;
};

}  // namespace tessera
