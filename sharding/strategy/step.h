// Step: one training step, from the first micro-batch to the update of the masters.
//
// A step has the calls of a strategy that must come in order. A call in the wrong place raises an
// Error that names the step and the missing call, so no step computes with stale weights.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/gradient_norm/op.h"
#include "sharding/shard.h"

namespace tessera {

class Strategy;

/// The state by which the order of calls is checked.
struct StepProtocol {
  std::int64_t step = 0;  // steps begun
  enum class Phase { between_steps, micro_batches, complete } phase = Phase::between_steps;
  int finished = 0;  // micro-batches of this step
  enum class Masters { current, being_written, torn } masters = Masters::current;
};

class Step {
 public:
  explicit Step(Strategy& strategy);
  /// A step that ends early, for example by an exception, is given up.
  ~Step();
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  /// A micro-batch's backward pass has ended, in a pipeline that of one chunk of this rank's. After the
  /// last, the shards' gradients are complete.
  void finish_micro_batch(int chunk = 0);
  /// The norm of the whole gradient, on the device. All ranks get the same bits. A collective.
  GradientNorm gradient_norm();
  /// Runs `write`, which updates the shards' data from their gradients: Strategy::write_masters for
  /// this step. An Optimizer also writes the copies. A collective.
  void update(const std::function<void()>& write, Writes writes = Writes::masters);
  /// The same under the next forward pass: queues `write(unit)`, which updates the shards of a unit with their
  /// copies, for every unit on the update stream, in the order of the forward pass. There each unit waits for
  /// its own part alone.
  void update_by_unit(const std::function<void(int unit)>& write);
  /// Ends the step with the masters as they are. A collective.
  void discard();

 private:
  /// Raises Error unless all micro-batches are finished and the step has not ended.
  void check_complete(const char* call) const;

  Strategy& strategy_;
};

}  // namespace tessera
