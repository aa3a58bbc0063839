// Exchange: the collectives that move a bucket between ranks.
//
// A bucket's buffer (sharding/plan/partition.h) is gathered before its parameters are used, and
// reduced when its gradients are complete. Both are queued on a stream. Each layout has its own
// exchange; a strategy is little more than a layout, an exchange and the axes of the mesh.
#pragma once

#include <memory>

#include "runtime/stream.h"
#include "runtime/tensor.h"
#include "sharding/plan/plan.h"
#include "sharding/strategy/mesh_communicators.h"

namespace tessera {

class Exchange {
 public:
  virtual ~Exchange() = default;
  /// Fills `buffer` with the parts of all shards. This rank's own part is already up to date.
  virtual void gather(const BucketLayout& bucket, const Tensor& buffer, const Stream& stream) = 0;
  /// Turns this rank's own part of `buffer` into the sum over all shards. The buffer ends with the
  /// trained elements; its other parts are undefined afterwards.
  virtual void reduce(const BucketLayout& bucket, const Tensor& buffer, const Stream& stream) = 0;
  /// Turns this rank's own part of `buffer` into the sum over the replicas, if there are several.
  virtual void sum_replicas(const BucketLayout& bucket, const Tensor& buffer,
                            const Stream& stream) = 0;
  /// The ranks that gather, or else reduce: buffers are theirs (Communicator::buffer).
  virtual Communicator& ranks() = 0;
};

/// The exchange for a group's layout. The communicators must outlive it.
std::unique_ptr<Exchange> make_exchange(const GroupPlan& group, MeshCommunicators& communicators);
/// The exchange of this rank's reshard group; null unless the plan reshards to groups.
std::unique_ptr<Exchange> make_reshard_exchange(const GroupPlan& group,
                                                MeshCommunicators& communicators);

}  // namespace tessera
