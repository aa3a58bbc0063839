// GradientSums: the reduced gradients of a rank's own parts, summed over micro-batches.
//
// They are the shards' gradients themselves, unless gradients are offloaded
// (offload/host_gradients.h).
#pragma once

#include <memory>

#include "sharding/strategy/group_resources.h"

namespace tessera {

class GradientSums {
 public:
  virtual ~GradientSums() = default;
  /// Gives a trained shard its gradient. `window` is where the bucket's buffer holds the sum, for
  /// GradientCase::reduce_in_place; undefined otherwise.
  virtual void make(int bucket, int parameter, const Tensor& window) = 0;
  /// Queues sum += reduced on the communication stream, or sum = reduced if `first`. `reduced` has
  /// a tensor per trained parameter of the bucket, in order.
  virtual void add(int bucket, const Tensors& reduced, bool first) = 0;
  /// The step's sums of a bucket are complete, once the communication stream gets here.
  virtual void complete(int bucket) = 0;
  /// The sums of a bucket's trained parameters, in order; on the device if they lie there.
  virtual Tensors of(int bucket) const = 0;
};

/// On the device, or copied to the host if the placement offloads gradients.
std::unique_ptr<GradientSums> make_gradient_sums(const GroupResources& resources);

/// Turns the first of the `count` equal parts of `all` into the sum of all parts, on the communication
/// stream, and returns it. Parts are gradients of a rank's experts, one for each rank that rows came
/// from. Their sum is the part of the tree of sums (kernels/tree_reduce/op.h) within this group of
/// neighbouring ranks.
Tensor queue_sum_of(int count, const Tensor& all);

/// Queues sums[i] += values[i] on the communication stream, or sums[i] = values[i] if `first`.
void queue_accumulation(Tensors sums, Tensors values, bool first);

}  // namespace tessera
