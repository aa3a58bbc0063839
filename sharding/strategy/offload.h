// Offload: masters, optimizer state and gradients that lie in host memory beside a GPU.
//
//   sharding.offload   on the GPU                          in (pinned) host memory
//   none               all                                 -
//   optimizer          own values in the compute dtype,    masters, optimizer state, gradients
//                      gradients
//   all                -                                   those, and the own values
//
// The optimizer then runs on the CPU. Values go up and gradients come down on the communication
// stream, bucket by bucket, so the former hide behind the next forward pass and the latter behind
// backward. The CPU's update has the bits of the GPU's, and so has a run.
#pragma once

#include "runtime/device.h"
#include "sharding/strategy/parameter_store.h"

namespace tessera {

/// What the options come to on a device: beside a CPU there is no other memory to move to.
ShardingOptions options_on(const Device& device, ShardingOptions options);

inline bool offloads(const ShardingOptions& options) {
  return options.offload != Offload::none;
}

/// Room for an f32 master: in host memory if it is offloaded.
Tensor make_separate_master(const ShardingOptions& options, std::int64_t elements);

/// The values of offloaded masters, in host memory, in the dtype that is computed with: what copies
/// to the GPU start from.
class HostValues {
 public:
  explicit HostValues(const BucketResources& resources) : resources_(resources) {}

  /// To be called when the masters have changed. Waits for the copies that still read the old
  /// values.
  void refresh();
  /// Those of a shard: the master itself in f32, else its rounded copy.
  const Tensor& of(int bucket, int parameter) const;

 private:
  BucketResources resources_;
  /// One per shard.
  std::vector<Tensor> rounded_;
};

}  // namespace tessera
