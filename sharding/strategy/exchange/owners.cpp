// ZeRO-3's exchange with whole tensors: each has one owner, who broadcasts it and receives the sum
// of its gradients. Tensors of one owner travel together; as the partition is contiguous, a bucket
// rarely has more than two owners.
#include <map>

#include "sharding/strategy/exchange.h"

namespace tessera {
namespace {

class OwnerExchange final : public Exchange {
 public:
  explicit OwnerExchange(std::shared_ptr<Communicator> ranks) : ranks_(std::move(ranks)) {}

  void gather(const BucketLayout& bucket, const Tensor& buffer, const Stream& stream) override {
    for (const auto& [owner, tensors] : by_owner(bucket, buffer, /*trained_only=*/false)) {
      ranks_->broadcast(tensors, owner, stream, bucket.name);
    }
  }

  void reduce(const BucketLayout& bucket, const Tensor& buffer, const Stream& stream) override {
    for (const auto& [owner, tensors] : by_owner(bucket, buffer, /*trained_only=*/true)) {
      ranks_->reduce(tensors, owner, stream, bucket.name);
    }
  }

 private:
  static std::map<int, Tensors> by_owner(const BucketLayout& bucket, const Tensor& buffer,
                                         bool trained_only) {
    const Tensors segments = segments_of(bucket, buffer, trained_only);
    std::map<int, Tensors> grouped;
    for (std::size_t i = 0; i < segments.size(); ++i) {
      grouped[bucket.segments[i].owner].push_back(segments[i]);
    }
    return grouped;
  }

  std::shared_ptr<Communicator> ranks_;
};

}  // namespace

std::unique_ptr<Exchange> make_owner_exchange(std::shared_ptr<Communicator> ranks) {
  return std::make_unique<OwnerExchange>(std::move(ranks));
}

}  // namespace tessera
