// StepWatch: the readings of one watched step, unit by unit (train.watch).
//
//   ActivationWatch activations(units, heads);
//   StepWatch watch(strategy, units, activations);
//   { ActivationWatchScope scope(activations); the passes }
//   watch.before_update();    gradients are complete
//   the optimizer's step
//   watch.after_update();
//   the ranks add sums() up, and take the largest of activations.largest()
//   watch.copy_to_host();  the host waits once;  watch.readings(loss_scale)
//
// Norms are exact sums (kernels/gradient_norm/op.h). Each element counts on one rank, that which saves it in
// checkpoints. So readings have the same bits for every strategy and number of ranks with which the
// values have.
//
// The norm of an update needs the masters before it. A rank keeps a copy of those that it saves, 4 bytes each,
// from before_update() to after_update(), when the memory of activations is free.
#pragma once

#include <optional>
#include <vector>

#include "autograd/activation_watch.h"
#include "runtime/host_copy.h"
#include "sharding/strategy/strategy.h"
#include "tools/watch/unit_readings.h"

namespace tessera {

class StepWatch {
 public:
  /// All must outlive it.
  StepWatch(const Strategy& strategy, const Units& units, const ActivationWatch& activations);

  void before_update();
  void after_update();

  /// i64: the words of the norms, and the entropies of routers.
  Tensors sums() const { return {norms_, activations_.entropies()}; }

  /// Queues the copies.
  void copy_to_host();
  /// Those of all ranks, once the stream is synchronized. `loss_scale`: the factor of all gradients.
  std::vector<UnitReadings> readings(double loss_scale) const;

 private:
  enum Norm : std::int64_t { kGradient, kUpdate, kWeight, kNorms };

  /// The elements of a shard that this rank counts.
  struct Part {
    std::size_t unit = 0;
    const Shard* shard = nullptr;
    ElementRange elements = {};

    Tensor of(const Tensor& values) const {
      return values.reshape({values.numel()}).slice(elements.begin, elements.end);
    }
  };

  /// Writes the norm of each unit; `values` belong to parts_.
  void write_norms(Norm norm, const Tensors& values);

  const Units& units_;
  const ActivationWatch& activations_;
  std::vector<Part> parts_;
  /// The masters before the update.
  Tensors before_;
  Tensor norms_;  // [units, kNorms, kNormWords]
  std::optional<HostCopy<std::int64_t>> norm_words_, entropies_;
  std::optional<HostCopy<float>> largest_;
};

}  // namespace tessera
