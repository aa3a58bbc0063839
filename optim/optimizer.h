// Optimizers: they turn gradients into updates of the parameters' masters.
//
// An optimizer sees a rank's own parts of the parameters as flat ranges and knows nothing of where
// these lie in a model or on other ranks. Every update is elementwise, so a parameter gets the same
// bits however it is cut into shards.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/safetensors.h"
#include "runtime/tensor.h"

namespace tessera {

/// What the optimizer sees of a parameter: the rank's own part of it, flat. Empty parts are fine.
struct ParameterShard {
  std::string name;
  /// The master: f32, or bf16 where the optimizer can do with that.
  Tensor data;
  /// f32, bf16 or f16, as many elements as `data`. Looked at in step() only.
  Tensor gradient;
  /// Whether weight decay acts on it; see optim/decay_rule.h.
  bool decay = true;
  /// Flat index of its first element within the parameter: where its random numbers begin.
  std::int64_t first = 0;
};

/// What gradients are multiplied with before anything else (clipping, unscaling): a number, or a
/// tensor [1] f32 that the device has worked out. Where that is not finite nothing is changed.
struct GradientScale {
  GradientScale(double number = 1.0) : number(number) {}
  GradientScale(const Tensor& tensor) : tensor(tensor) {}

  double number = 1.0;
  Tensor tensor;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Updates every shard from its gradient times `gradient_scale`. Raises Error before anything is
  /// changed if a gradient is missing or does not fit its shard. Only queues work where shards lie
  /// on a device: a scale that turns out not to be finite has counted as an update, which
  /// set_steps(steps() - 1) takes back.
  void step(double learning_rate, const GradientScale& gradient_scale = {});

  /// Updates done so far.
  std::int64_t steps() const { return steps_; }
  /// Continues as after this many updates: for loading a checkpoint, beside filling state().
  void set_steps(std::int64_t steps);

  /// What a checkpoint must hold: "<parameter>.m" and so on, in the order of the shards. Windows,
  /// not copies: writing to them restores the optimizer.
  virtual NamedTensors state() const = 0;

  /// For giving a shard its gradient, which may lie elsewhere at every step.
  std::vector<ParameterShard>& shards() { return shards_; }
  const std::vector<ParameterShard>& shards() const { return shards_; }

 protected:
  /// Raises Error if a shard's data is not f32, nor bf16 if the optimizer `takes_bf16`.
  explicit Optimizer(std::vector<ParameterShard> shards, bool takes_bf16 = false);

  /// One zeroed f32 tensor per shard, of its shape, beside it (on the device or the host), charged
  /// to Category::optimizer.
  std::vector<Tensor> zeros_like_shards() const;

  /// Updates all shards; steps() already counts this update.
  virtual void update(double learning_rate, const GradientScale& gradient_scale) = 0;

 private:
  /// Shards in host memory are updated by the CPU, even beside a GPU.
  bool on_host() const;

  std::vector<ParameterShard> shards_;
  std::int64_t steps_ = 0;
};

}  // namespace tessera
