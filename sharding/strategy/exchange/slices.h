// FSDP's exchange, and that of ZeRO-1 and 2: every rank owns a slice of each segment.
//
// One collective moves all segments of a bucket, from and to their places, so nothing is packed or
// unpacked. HSDP adds a sum across the replicas, of the slices only.
#pragma once

#include "sharding/strategy/exchange.h"

namespace tessera {

class SliceExchange final : public Exchange {
 public:
  /// `replicas` is null where there is one replica.
  explicit SliceExchange(Communicator& shards, Communicator* replicas = nullptr)
      : shards_(shards), replicas_(replicas) {}

  void gather(const BucketLayout& bucket, const Tensor& buffer, const Stream& stream) override;
  void reduce(const BucketLayout& bucket, const Tensor& buffer, const Stream& stream) override;
  void sum_replicas(const BucketLayout& bucket, const Tensor& buffer,
                    const Stream& stream) override;
  Communicator& ranks() override { return shards_; }

 private:
  /// This rank's slices of the trained segments.
  Tensors own_parts(const BucketLayout& bucket, const Tensor& buffer) const;

  Communicator& shards_;
  Communicator* replicas_;
};

}  // namespace tessera
