// PartialSums: the sums below the top of the binary tree of micro-batches.
//
// A rank with K = 2^L micro-batches adds them like a binary counter. Reduced micro-batch i is
// leaf i of a tree. A sum of 2^l leaves waits on level l until its neighbour is there:
//
//   micro-batch       0    1      2    3
//   level 0           0    -      2    -
//   level 1           -    0+1    0+1  (0+1) + (2+3)
//
// The last level is GradientSums itself, so L - 1 levels are kept here (Plan::partial_sums).
#pragma once

#include <vector>

#include "sharding/strategy/group_resources.h"

namespace tessera {

class PartialSums {
 public:
  /// With offload `all` they lie in host memory, as the shards' gradients do.
  explicit PartialSums(const GroupResources& resources);

  /// Queues on the communication stream: adds the waiting sums to `reduced`, which has a tensor per
  /// trained parameter of the bucket, in order. Returns false if the result belongs to the last level;
  /// otherwise it is kept.
  bool keep(int bucket, int micro_batch, const Tensors& reduced);

 private:
  /// The sums of a bucket's trained parameters on a level.
  Tensors of(int level, int bucket) const;

  const GroupResources resources_;
  /// Per level and parameter of the group; undefined for frozen ones.
  std::vector<Tensors> levels_;
  /// Sums in host memory are fetched into this buffer.
  Tensor scratch_;
};

}  // namespace tessera
