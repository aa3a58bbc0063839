// The state of a run between two steps: weights, optimizer state, gradients.
#pragma once

#include <string>
#include <vector>

#include "tools/train/session.h"

namespace tessera {

/// This rank's part of a parameter's tensor.
struct StateTensor {
  /// "h.1.ln_1.weight", or "h.1.ln_1.weight.m" of the optimizer.
  std::string name;
  std::string unit;
  Tensor values;
};

/// The masters, then the optimizer's state. Waits for the device.
std::vector<StateTensor> state_before_step(TrainingSession& session);
/// The reduced gradients after a step or TrainingSession::observe.
std::vector<StateTensor> gradients_of(TrainingSession& session);

}  // namespace tessera
