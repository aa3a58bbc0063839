// ZeRO-3's exchange with whole tensors: an owner broadcasts, and receives the sum of gradients.
//
// Tensors of one owner travel together. The partition is contiguous, so a bucket rarely has more
// than two owners.
#pragma once

#include "sharding/strategy/exchange.h"

namespace tessera {

class OwnerExchange final : public Exchange {
 public:
  explicit OwnerExchange(Communicator& ranks) : ranks_(ranks) {}

  void gather(const BucketLayout& bucket, const Tensor& buffer, const Stream& stream) override;
  void reduce(const BucketLayout& bucket, const Tensor& buffer, const Stream& stream) override;
  void sum_replicas(const BucketLayout&, const Tensor&, const Stream&) override {}

 private:
  Communicator& ranks_;
};

}  // namespace tessera
