// Ema: an exponential moving average of the weights (Polyak, Juditsky 1992).
//
//   average = average + (1 - decay) * (weight - average)      after every update
//
// This is a step of gradient descent on half the squared distance to the weight, so SGD's kernel makes it.
// An average is f32, and lies where its master lies: 4 bytes per element, charged to the optimizer. It
// starts as the weight at construction. After an update that was skipped it stays.
#pragma once

#include <vector>

#include "optim/sgd.h"

namespace tessera {

class Ema {
 public:
  /// `place`: that of the averages' step among the optimizers (StepNumbers::learning_rates).
  Ema(const std::vector<ParameterShard>& shards, double decay, std::size_t place);

  /// The share of the distance that an update goes.
  double share() const { return 1.0 - decay_; }
  /// Follows an update with this scale: not finite, the update was skipped.
  void update(const GradientScale& of_update) {
    start_step(of_update);
    update_unit(kEveryUnit);
  }
  /// The same in parts, as in Optimizer.
  void start_step(const GradientScale& of_update);
  void update_unit(int unit) { sgd_.update_unit(unit, share(), scale_); }
  /// By the parameters' names, in the order of the shards.
  NamedTensors averages() const;

 private:
  double decay_;
  Sgd sgd_;
  /// [1] f32: -1, and -1 or NaN.
  Tensor minus_one_, on_device_;
  GradientScale scale_;
};

}  // namespace tessera
