// DDP's exchange (Li et al. 2020, "PyTorch Distributed"): parameters stay put, gradients are summed
// everywhere.
#include "sharding/strategy/exchange.h"

namespace tessera {
namespace {

class AllReduceExchange final : public Exchange {
 public:
  explicit AllReduceExchange(std::shared_ptr<Communicator> ranks) : ranks_(std::move(ranks)) {}

  void gather(const BucketLayout&, const Tensor&, const Stream&) override {}

  void reduce(const BucketLayout& bucket, const Tensor& buffer, const Stream& stream) override {
    ranks_->all_reduce(segments_of(bucket, buffer, /*trained_only=*/true), stream, bucket.name);
  }

 private:
  std::shared_ptr<Communicator> ranks_;
};

}  // namespace

std::unique_ptr<Exchange> make_all_reduce_exchange(std::shared_ptr<Communicator> ranks) {
  return std::make_unique<AllReduceExchange>(std::move(ranks));
}

}  // namespace tessera
