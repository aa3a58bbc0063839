// AdamW (Loshchilov, Hutter 2019): Adam with decoupled weight decay. The formula is in
// kernels/adamw/op.h. State: two moments per element, allocated at construction: 8 bytes in f32, 4
// in bf16.
//
// Shards in bf16 have no f32 masters. They and moments in bf16 are updated by stochastic rounding.
// Either all shards are f32 or all are bf16.
#pragma once

#include <vector>

#include "optim/optimizer.h"

namespace tessera {

/// PyTorch's names and defaults.
struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
  /// f32 or bf16.
  DType state_dtype = DType::f32;
  /// The seed of the random numbers that round shards and moments in bf16. They are addressed by
  /// seed, parameter, update and element.
  std::uint64_t seed = 0;
};

class AdamW final : public Optimizer {
 public:
  explicit AdamW(std::vector<ParameterShard> shards, const AdamWOptions& options = {});

  /// "<parameter>.m" and "<parameter>.v".
  NamedTensors state() const override;

 private:
  void update(const std::vector<std::size_t>& shards, double learning_rate,
              const GradientScale& gradient_scale) override;

  AdamWOptions options_;
  std::vector<Tensor> m_;
  std::vector<Tensor> v_;
};

}  // namespace tessera
