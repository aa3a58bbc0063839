#include "optim/loss_scaler.h"

#include <algorithm>
#include <cmath>

#include "runtime/check.h"

namespace tessera {

LossScaler::LossScaler(const State& state) : state_(state) {
  int exponent = 0;
  check(state.scale >= kLeast && state.scale <= kMost && std::frexp(state.scale, &exponent) == 0.5,
        "loss scaler: the scale is {}; expected a power of two from {} to {}", state.scale, kLeast,
        kMost);
  check(state.good_steps >= 0 && state.good_steps < kGrowthInterval,
        "loss scaler: good_steps is {}; expected 0 to {}", state.good_steps, kGrowthInterval - 1);
}

void LossScaler::update(bool finite) {
  if (!finite) {
    state_ = {.scale = std::max(kLeast, state_.scale / 2), .good_steps = 0};
  } else if (++state_.good_steps == kGrowthInterval) {
    state_ = {.scale = std::min(kMost, state_.scale * 2), .good_steps = 0};
  }
}

}  // namespace tessera
