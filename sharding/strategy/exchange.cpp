#include "sharding/strategy/exchange.h"

#include <map>

#include "runtime/check.h"
#include "sharding/strategy/exchange/slices.h"
#include "sharding/strategy/windows.h"

namespace tessera {
namespace {

/// DDP's exchange (Li et al. 2020, "PyTorch Distributed"): gradients are summed on every rank. Every
/// rank holds all parameters, so there is nothing to gather.
class AllReduceExchange final : public Exchange {
 public:
  explicit AllReduceExchange(Communicator& ranks) : ranks_(ranks) {}

  void gather(const BucketLayout&, const Tensor&, const Stream&) override {}
  void reduce(const BucketLayout&, const Tensor&, const Stream&) override {}
  void sum_replicas(const BucketLayout& bucket, const Tensor& buffer,
                    const Stream& stream) override {
    ranks_.all_reduce(segments_of(bucket, buffer, Segments::trained), stream, bucket.name);
  }
  Communicator& ranks() override { return ranks_; }

 private:
  Communicator& ranks_;
};

std::map<int, Tensors> by_owner(const BucketLayout& bucket, const Tensor& buffer, Segments which) {
  const Tensors segments = segments_of(bucket, buffer, which);
  std::map<int, Tensors> grouped;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    grouped[bucket.segments[i].owner].push_back(segments[i]);
  }
  return grouped;
}

/// ZeRO-3's exchange with whole tensors: an owner broadcasts, and receives the sum of gradients.
/// Tensors of one owner travel together. The partition is contiguous, so a bucket rarely has more than
/// two owners.
class OwnerExchange final : public Exchange {
 public:
  explicit OwnerExchange(Communicator& ranks) : ranks_(ranks) {}

  void gather(const BucketLayout& bucket, const Tensor& buffer, const Stream& stream) override {
    for (const auto& [owner, tensors] : by_owner(bucket, buffer, Segments::all)) {
      ranks_.broadcast(tensors, owner, stream, bucket.name);
    }
  }
  void reduce(const BucketLayout& bucket, const Tensor& buffer, const Stream& stream) override {
    for (const auto& [owner, tensors] : by_owner(bucket, buffer, Segments::trained)) {
      ranks_.reduce(tensors, owner, stream, bucket.name);
    }
  }
  void sum_replicas(const BucketLayout&, const Tensor&, const Stream&) override {}
  Communicator& ranks() override { return ranks_; }

 private:
  Communicator& ranks_;
};

}  // namespace

std::unique_ptr<Exchange> make_exchange(const GroupPlan& group, MeshCommunicators& communicators) {
  const Placement& placement = group.placement;
  switch (placement.layout) {
    case Layout::whole:
      return std::make_unique<AllReduceExchange>(communicators.along(placement.replicate));
    case Layout::tensors:
      return std::make_unique<OwnerExchange>(communicators.along(placement.shard));
    case Layout::rows:
    case Layout::flat: {
      Communicator& shards = communicators.along(placement.shard);
      Communicator* replicas =
          group.replicas > 1 ? &communicators.along(placement.replicate) : nullptr;
      return std::make_unique<SliceExchange>(shards, replicas);
    }
  }
  fail("there is no layout number {}", static_cast<int>(placement.layout));
}

std::unique_ptr<Exchange> make_reshard_exchange(const GroupPlan& group,
                                                MeshCommunicators& communicators) {
  if (group.placement.reshard != Reshard::to_groups) return nullptr;
  Communicator& shards = communicators.along(group.placement.shard);
  return std::make_unique<SliceExchange>(
      communicators.split(shards, [&](int shard) { return group.reshard_group_of(shard).number; }));
}

}  // namespace tessera
