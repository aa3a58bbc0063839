// GroupResources: the values that the parts of a parameter group share on one rank.
#pragma once

#include <span>

#include "sharding/plan/plan.h"
#include "sharding/shard.h"
#include "sharding/strategy/exchange.h"
#include "sharding/strategy/windows.h"

namespace tessera {

/// `plan` and `group` are the same on all ranks (sharding/plan/plan.h); the rest belongs to this
/// rank. The referenced objects outlive the group.
struct GroupResources {
  const Plan& plan;
  const GroupPlan& group;
  /// This rank's number among the group's shards.
  int shard = 0;
  /// One per parameter, in the order of Partition::index_of.
  std::span<Shard> shards;
  /// Null for strategy single.
  Exchange* exchange = nullptr;
  /// Among the ranks of this rank's reshard group; null unless the plan reshards to groups.
  Exchange* reshard_exchange = nullptr;

  /// Zeros for the exchange to gather or reduce.
  Tensor buffer(std::int64_t elements, DType dtype) const {
    return exchange == nullptr ? Tensor::zeros({elements}, dtype)
                               : exchange->ranks().buffer(elements, dtype);
  }
  const std::vector<BucketLayout>& buckets() const { return group.buckets(); }
  DType gradient_dtype() const { return group.placement.gradient_dtype; }
  const Parameter& parameter(int bucket, int parameter) const {
    return buckets()[bucket].parameters[parameter];
  }
  int index_of(int bucket, int parameter) const {
    return group.partition.index_of(bucket, parameter);
  }
  Shard& shard_of(int bucket, int parameter) const {
    return shards[static_cast<std::size_t>(index_of(bucket, parameter))];
  }
  Range owned(int bucket, int parameter) const {
    return group.partition.owned(bucket, parameter, shard);
  }
  /// Where this rank's part of a parameter lies in its bucket's buffer.
  Tensor own_place(int bucket, int parameter, const Tensor& buffer) const {
    return window_of(buffer, buckets()[bucket].place_of(parameter, owned(bucket, parameter)));
  }
};

}  // namespace tessera
