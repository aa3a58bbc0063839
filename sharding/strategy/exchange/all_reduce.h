// DDP's exchange (Li et al. 2020, "PyTorch Distributed"): gradients are summed on every rank.
//
// Every rank holds all parameters, so there is nothing to gather.
#pragma once

#include "sharding/strategy/exchange.h"

namespace tessera {

class AllReduceExchange final : public Exchange {
 public:
  explicit AllReduceExchange(Communicator& ranks) : ranks_(ranks) {}

  void gather(const BucketLayout&, const Tensor&, const Stream&) override {}
  void reduce(const BucketLayout&, const Tensor&, const Stream&) override {}
  void sum_replicas(const BucketLayout& bucket, const Tensor& buffer,
                    const Stream& stream) override;

 private:
  Communicator& ranks_;
};

}  // namespace tessera
