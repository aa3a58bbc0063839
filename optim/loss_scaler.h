// Dynamic loss scaling (Micikevicius et al. 2018), with the constants of torch.amp.GradScaler.
//
// The smallest f16 number is 2^-24, and many gradients are smaller. So the loss is multiplied by a
// large scale, and with it every gradient; the optimizer divides again, in f32. If the scale is too
// large, the gradients overflow: their norm is not finite, the step is skipped and the scale halved.
// After enough good steps in a row it is doubled. One step of training:
//
//   loss = model.loss(inputs, targets, scaler.scale() / tokens, true)    and backward
//   norm = gradient_norm(gradients)
//   clip_factor(factor, norm, loss, {clip_norm, scaler.scale()})     NaN if anything is not finite
//   optimizer.step(learning_rate, factor)                            NaN: changes nothing
//   finite = std::isfinite(norm.value())                             the host waits only here
//   if (!finite) optimizer.step_was_skipped()
//   scaler.update(finite)
//
// The loss to report is loss / scale. Scales are powers of two, so scaling and unscaling are exact
// unless a number overflows or underflows. Every rank knows the global norm, so all ranks decide
// alike without another message. bf16 has the range of f32 and needs no scaling.
#pragma once

#include <cstdint>

namespace tessera {

class LossScaler {
 public:
  static constexpr double kInitial = 0x1p16;
  /// At scale 1 a non-finite gradient is a real divergence; the caller should stop.
  static constexpr double kLeast = 1.0;
  /// Without this bound the scale would grow until the loss itself overflows f32, if for example
  /// every gradient is zero.
  static constexpr double kMost = 0x1p24;
  /// Good steps in a row after which the scale is doubled.
  static constexpr std::int64_t kGrowthInterval = 2000;

  /// The state that a checkpoint must hold.
  struct State {
    double scale = kInitial;
    /// Good steps since the scale last changed.
    std::int64_t good_steps = 0;
  };

  LossScaler() = default;
  /// Continues from a checkpoint. Raises Error if the scale is not a power of two in [kLeast,
  /// kMost] or good_steps is not in [0, kGrowthInterval).
  explicit LossScaler(const State& state);

  double scale() const { return state_.scale; }
  const State& state() const { return state_; }

  /// Call it once per step. `finite`: was the norm of the scaled gradient finite?
  void update(bool finite);

 private:
  State state_;
};

}  // namespace tessera
