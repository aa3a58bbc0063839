// Optimizers update the parameters' masters from their gradients.
//
// An optimizer sees this rank's parts of the parameters as flat ranges. Updates are elementwise, or
// whole matrices are exchanged (runtime/matrix_exchange.h), so a parameter gets the same bits however
// it is cut into shards.
//
// An optimizer updates every shard in every step. A parameter that the step did not use has a
// gradient of zero: it still gets weight decay, and its momentum and moments still decay. (PyTorch
// skips a parameter without a gradient. The two differ for a parameter that no batch of a step
// reaches, such as an idle expert.)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/fp8/op.h"
#include "runtime/elements.h"
#include "runtime/safetensors.h"
#include "runtime/tensor.h"

namespace tessera {

/// The rank's own part of one parameter, flat. It may be empty. optim/shards.h makes these from a
/// strategy's shards.
struct ParameterShard {
  std::string name;
  /// The master: f32, or bf16 if the optimizer supports that.
  Tensor data;
  /// f32, bf16 or f16, with as many elements as `data`. Read in step() only.
  Tensor gradient;
  /// The master's values in the dtype of the model's computation, as many; may be undefined. step()
  /// writes it with `data`.
  Tensor copy = {};
  /// For a copy in 8 bits.
  Fp8Rounding rounding = {};
  /// Whether weight decay acts on it; see optim/decay_rule.h.
  bool decay = true;
  /// Its elements of the parameter: the addresses of their random numbers.
  Elements elements = {};
  /// The first unit that computes with it, by its place in the forward pass.
  int unit = 0;
};

/// The factor that all gradients are multiplied by, for clipping and against loss scaling. It is a
/// number, or a tensor [1] f32 that the device has computed. If the tensor's value is not finite,
/// the step changes nothing.
struct GradientScale {
  GradientScale(double number = 1.0) : number(number) {}
  GradientScale(const Tensor& tensor) : tensor(tensor) {}

  double number = 1.0;
  Tensor tensor;
};

/// In place of a unit: all of them.
inline constexpr int kEveryUnit = -1;

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Updates every shard, and its copy, from its gradient times `gradient_scale`. Raises Error
  /// before anything is changed if a gradient is missing or does not fit its shard. On a GPU this
  /// only queues work; see step_was_skipped().
  void step(double learning_rate, const GradientScale& gradient_scale = {});

  /// step() in parts: start_step(), then update_unit() for every unit that has shards, with equal
  /// arguments. The second may run on another thread, at the same time as step_was_skipped(). There are
  /// no parts for offloaded shards, nor for an optimizer that exchanges matrices.
  void start_step();
  void update_unit(int unit, double learning_rate, const GradientScale& gradient_scale);

  /// Raises Error if a gradient is missing or does not fit its shard.
  void check_gradients() const;

  /// Reports that the last step's scale was not finite, so the step changed nothing: it no longer
  /// counts in steps(), nor in AdamW's bias correction. The optimizer cannot know this by itself
  /// without waiting for the device. Raises Error unless step() was called since the last report.
  void step_was_skipped();

  /// Updates done so far.
  std::int64_t steps() const { return steps_; }
  /// Sets the number of updates. To load a checkpoint, call this and fill state().
  void set_steps(std::int64_t steps);

  /// The tensors that a checkpoint must hold: "<parameter>.m" and so on, in the order of the
  /// shards. They are windows, not copies: writing to them restores the optimizer.
  virtual NamedTensors state() const = 0;

  /// The caller may give a shard another gradient before every step.
  std::vector<ParameterShard>& shards() { return shards_; }
  const std::vector<ParameterShard>& shards() const { return shards_; }

 protected:
  /// Raises Error if a shard's data is not f32, nor bf16 if the optimizer `takes_bf16`.
  explicit Optimizer(std::vector<ParameterShard> shards, bool takes_bf16 = false);

  /// One zeroed tensor per shard, of its shape and in the same memory (the device's or the host's),
  /// charged to Category::optimizer.
  std::vector<Tensor> zeros_like_shards(DType dtype = DType::f32) const;

  /// Writes the copy, if it is defined, from the new master, in a pass by itself.
  struct Copied {
    Tensor copy, master;
    Fp8Rounding rounding;
  };
  static void write_copies(const std::vector<Copied>& all);

  /// Updates the shards with these indices, and their copies, which lie in one memory, as does the
  /// scale. Called once in a step, or for a unit, even if no shard has elements; with shards in both
  /// memories, once for each.
  virtual void update(const std::vector<std::size_t>& shards, double learning_rate,
                      const GradientScale& gradient_scale) = 0;

  /// The number of the update that was begun last, from 1.
  std::int64_t number() const { return number_; }
  /// Its place among the optimizers of a step (StepNumbers::learning_rates).
  std::size_t place() const { return place_; }

 private:
  friend class Ema;
  friend class OptimizerGroups;

  std::vector<ParameterShard> shards_;
  std::size_t place_ = 0;
  std::int64_t steps_ = 0;
  std::int64_t number_ = 0;
  bool may_have_been_skipped_ = false;
};

}  // namespace tessera
