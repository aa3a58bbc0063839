// Exchange: what ranks send each other about a bucket. It is what tells the strategies apart.
//
// A bucket's buffer (sharding/plan/partition.h) is gathered to make its parameters whole and reduced
// when its gradients are complete. Both are queued on a stream.
#pragma once

#include <memory>

#include "runtime/stream.h"
#include "sharding/comm/communicator.h"
#include "sharding/plan/partition.h"

namespace tessera {

class Exchange {
 public:
  virtual ~Exchange() = default;
  /// `buffer`, in which this rank's own part is up to date, becomes whole.
  virtual void gather(const BucketLayout& bucket, const Tensor& buffer, const Stream& stream) = 0;
  /// This rank's own part of `buffer`, which ends with the trained elements, becomes the sum over
  /// all ranks. The other parts are used up.
  virtual void reduce(const BucketLayout& bucket, const Tensor& buffer, const Stream& stream) = 0;
};

/// Every rank keeps everything, so there is nothing to gather; gradients are all-reduced.
std::unique_ptr<Exchange> make_all_reduce_exchange(std::shared_ptr<Communicator> ranks);
/// Every rank owns an equal slice of every segment: all-gather and reduce-scatter, in place.
std::unique_ptr<Exchange> make_slice_exchange(std::shared_ptr<Communicator> ranks);
/// Every segment has one owner: it broadcasts the parameters and gets the sum of the gradients.
std::unique_ptr<Exchange> make_owner_exchange(std::shared_ptr<Communicator> ranks);
/// Slices within `shards`, which then are summed across `replicas`.
std::unique_ptr<Exchange> make_hybrid_exchange(std::shared_ptr<Communicator> shards,
                                               std::shared_ptr<Communicator> replicas);

/// The trained, or all, segments of a bucket as windows into its buffer.
Tensors segments_of(const BucketLayout& bucket, const Tensor& buffer, bool trained_only);

}  // namespace tessera
