// FSDP's exchange, and that of ZeRO-1 and 2: every rank owns a slice of each segment. One
// collective moves all segments of a bucket, each straight into its place, so nothing is packed or
// unpacked. HSDP adds a sum across the replicas, of the slices only.
#include "sharding/strategy/exchange.h"

namespace tessera {
namespace {

Tensors own_parts(const BucketLayout& bucket, const Tensor& buffer, const Communicator& ranks) {
  Tensors parts;
  for (int i = 0; i < bucket.trainable_segments; ++i) {
    const Range part = part_of(bucket.segments[i], ranks.size(), ranks.rank());
    parts.push_back(buffer.slice(part.first, part.end()));
  }
  return parts;
}

class SliceExchange : public Exchange {
 public:
  explicit SliceExchange(std::shared_ptr<Communicator> ranks) : ranks_(std::move(ranks)) {}

  void gather(const BucketLayout& bucket, const Tensor& buffer, const Stream& stream) override {
    ranks_->all_gather(segments_of(bucket, buffer, /*trained_only=*/false), stream, bucket.name);
  }

  void reduce(const BucketLayout& bucket, const Tensor& buffer, const Stream& stream) override {
    ranks_->reduce_scatter(own_parts(bucket, buffer, *ranks_),
                           segments_of(bucket, buffer, /*trained_only=*/true), stream, bucket.name);
  }

 protected:
  std::shared_ptr<Communicator> ranks_;
};

class HybridExchange final : public SliceExchange {
 public:
  HybridExchange(std::shared_ptr<Communicator> shards, std::shared_ptr<Communicator> replicas)
      : SliceExchange(std::move(shards)), replicas_(std::move(replicas)) {}

  void reduce(const BucketLayout& bucket, const Tensor& buffer, const Stream& stream) override {
    SliceExchange::reduce(bucket, buffer, stream);
    replicas_->all_reduce(own_parts(bucket, buffer, *ranks_), stream, bucket.name);
  }

 private:
  std::shared_ptr<Communicator> replicas_;
};

}  // namespace

std::unique_ptr<Exchange> make_slice_exchange(std::shared_ptr<Communicator> ranks) {
  return std::make_unique<SliceExchange>(std::move(ranks));
}

std::unique_ptr<Exchange> make_hybrid_exchange(std::shared_ptr<Communicator> shards,
                                               std::shared_ptr<Communicator> replicas) {
  return std::make_unique<HybridExchange>(std::move(shards), std::move(replicas));
}

}  // namespace tessera
