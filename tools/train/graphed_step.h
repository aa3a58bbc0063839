// GraphedStep: the device work of training steps as a CUDA graph (runtime.graph).
//
//   step 1      runs as always: products choose their algorithms, streams and workspaces are made
//   step 2      is captured, then launched
//   step 3...   launch the same graph
//
// A graph reads the same addresses at every launch. So the batches of all micro-batches, and the sums
// that collect losses, lie in memory of their own, in every step; the host writes to it before the
// launch. Other numbers of a step are StepValues.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/gradient_norm/op.h"
#include "runtime/step_values.h"
#include "tools/data/loader.h"

namespace tessera {

namespace cuda {
class Graph;
}

/// The tensors that a step's work begins with.
struct StepInputs {
  /// f32: the losses (Plan::losses), then whether a rank was asked to stop. The work adds to it.
  Tensor sums;
  /// Micro-batch i of this rank.
  std::function<Batch(std::int64_t i)> batch;
  /// Rows of the whole batch.
  std::int64_t rows = 0;
};

class GraphedStep {
 public:
  /// Queues the work of a step, and returns the gradient's norm.
  using Work = std::function<GradientNorm(const StepInputs& inputs)>;

  explicit GraphedStep(std::int64_t micro_batches) : batches_(micro_batches) {}

  /// Copies the inputs to their places, and queues `work` on them or launches its graph. The host has
  /// read the results of the step before. `work` queues the same in every call, and refers to nothing
  /// that ends with the call.
  GradientNorm run(const StepNumbers& numbers, const StepInputs& inputs, const Work& work);

  /// StepInputs::sums after the work.
  const Tensor& sums() const { return sums_; }
  /// The nodes of the graph; 0 before the second step.
  std::int64_t nodes() const;

 private:
  void fill(const StepInputs& inputs);

  Tensor sums_;
  std::vector<Batch> batches_;
  GradientNorm norm_;  // of the graph
  std::int64_t steps_ = 0;
  std::shared_ptr<cuda::Graph> graph_;
};

}  // namespace tessera
