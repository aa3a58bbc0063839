// HostValues: masters in host memory next to a GPU.
//
// Copies to the GPU start from a value in the dtype that is computed in: the master itself if it
// has that dtype, or its copy, also in host memory, which the optimizer writes in the same pass.
// With offload `optimizer` and sharded parameters, this rank's own values stay on the GPU, and are
// copied up once after each update, before the bucket's first gather. Otherwise each gather copies
// them up.
#pragma once

#include "sharding/strategy/own_values.h"

namespace tessera {

class HostValues final : public OwnValues {
 public:
  explicit HostValues(const GroupResources& resources);

  Tensor make(std::int64_t elements, DType dtype) override;
  Tensor copy_of(int bucket, int parameter) override;
  /// Waits for the copies to the device that still read the old values.
  void masters_changed(Writes writes) override;
  void fill_own_part(int bucket, const Tensor& buffer) override;

 private:
  /// The value in the compute dtype, in host memory.
  const Tensor& on_host(int index) const;

  const GroupResources resources_;
  std::vector<Tensor> rounded_;    // per shard; undefined where the own values need no rounding
  std::vector<Tensor> on_device_;  // per shard, with offload `optimizer` and sharded parameters
  std::vector<bool> current_;      // per bucket: whether on_device_ holds the masters' values
};

}  // namespace tessera
