// HostGradients: gradients in host memory next to a GPU, where the CPU's optimizer reads them.
//
// With offload `optimizer`, sums of micro-batches are formed on the GPU and copied to the host as
// soon as they are complete. With `all`, the sums lie on the host; each is fetched back to the GPU
// to be added to.
#pragma once

#include "sharding/strategy/gradient_sums.h"

namespace tessera {

class HostGradients final : public GradientSums {
 public:
  explicit HostGradients(const GroupResources& resources);

  void make(int bucket, int parameter, const Tensor& window) override;
  void add(int bucket, const Tensors& reduced, bool first) override;
  void complete(int bucket) override;
  Tensors of(int bucket) const override;

 private:
  bool sums_on_device() const { return resources_.group.placement.offload == Offload::optimizer; }
  /// The shards' gradients of a bucket's trained parameters.
  Tensors on_host(int bucket) const;

  const GroupResources resources_;
  /// Per parameter of the group, with offload `optimizer`; undefined for frozen ones.
  Tensors on_device_;
  /// Offload `all` with several micro-batches: where a sum is added to.
  Tensor scratch_;
};

}  // namespace tessera
