// Dynamic loss scaling (Micikevicius et al. 2018), with the constants of torch.amp.GradScaler.
//
// f16 holds nothing below 2^-24, and many gradients are smaller. So the loss is multiplied by a
// large scale, and with it every gradient; the optimizer divides again, in f32. Too large a scale
// overflows: the norm of the gradient is then not finite, the step is skipped and the scale halved.
// After enough good steps in a row it is doubled. One step of training:
//
//   loss = model.loss(inputs, targets, scaler.scale() / tokens, true)    and backward
//   norm = gradient_norm(gradients)
//   clip_factor(factor, norm, loss, {clip_norm, scaler.scale()})     NaN if anything is not finite
//   optimizer.step(learning_rate, factor)                            changes nothing then
//   finite = std::isfinite(norm.value())                             only here the host waits
//   if (!finite) optimizer.set_steps(optimizer.steps() - 1)
//   scaler.update(finite)
//
// The loss to report is loss / scale. Scales are powers of two, so scaling and unscaling are exact
// wherever nothing overflows or underflows. Every rank knows the global norm, so all ranks decide
// alike without another message. bf16 has the range of f32 and needs no scaling.
#pragma once

#include <cstdint>

namespace tessera {

class LossScaler {
 public:
  static constexpr double kInitial = 0x1p16;
  /// At scale 1 a gradient that is not finite is not the scale's doing: whoever trains should stop.
  static constexpr double kLeast = 1.0;
  /// A scale that nothing stops, as when every gradient is zero, would grow until the loss itself
  /// overflows f32.
  static constexpr double kMost = 0x1p24;
  /// Good steps in a row after which the scale is doubled.
  static constexpr std::int64_t kGrowthInterval = 2000;

  /// What a checkpoint must hold.
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

  /// To be told once per step whether the norm of the scaled gradient was finite.
  void update(bool finite);

 private:
  State state_;
};

}  // namespace tessera
