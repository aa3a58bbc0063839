// Stochastic gradient descent with momentum, in PyTorch's conventions. The formula is in
// kernels/sgd/op.h. State: 4 bytes per element with momentum, allocated at construction, else none.
#pragma once

#include <vector>

#include "optim/optimizer.h"

namespace tessera {

struct SgdOptions {
  double momentum = 0.0;
  bool nesterov = false;
  double weight_decay = 0.0;
};

class Sgd final : public Optimizer {
 public:
  /// Raises Error on a negative momentum, or nesterov without momentum.
  explicit Sgd(std::vector<ParameterShard> shards, const SgdOptions& options = {});

  /// "<parameter>.momentum"; nothing without momentum.
  NamedTensors state() const override;

 private:
  void update(const std::vector<std::size_t>& shards, double learning_rate,
              const GradientScale& gradient_scale) override;

  SgdOptions options_;
  std::vector<Tensor> momentum_;
};

}  // namespace tessera
