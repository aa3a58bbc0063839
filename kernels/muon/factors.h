// The factors of Muon's passes as floats, the same on every device.
#pragma once

#include "kernels/muon/op.h"

namespace tessera {

struct MuonDirectionFactors {
  explicit MuonDirectionFactors(const MuonDirectionSettings& s)
      : rest(static_cast<float>(1.0 - s.momentum)),
        gradient_scale(static_cast<float>(s.gradient_scale)),
        nesterov(s.nesterov) {}

  float rest;  // 1 - momentum
  float gradient_scale;
  bool nesterov;
};

struct MuonUpdateFactors {
  explicit MuonUpdateFactors(const MuonUpdateSettings& s)
      : learning_rate(static_cast<float>(s.learning_rate)),
        kept(static_cast<float>(1.0 - s.learning_rate * s.weight_decay)) {}

  bool operator==(const MuonUpdateFactors&) const = default;

  float learning_rate;
  float kept;  // of p, by weight decay
};

}  // namespace tessera
