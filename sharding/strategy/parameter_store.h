// ParameterStore: where parameters are while they are used.
//
// The masters lie in the shards. What a unit computes with is a whole copy in the compute dtype,
// which either stays on every rank (DDP, ZeRO-1 and 2) or is gathered for as long as it is needed
// (ZeRO-3, FSDP, HSDP).
#pragma once

#include <memory>
#include <vector>

#include "sharding/comm/stream.h"
#include "sharding/plan/options.h"
#include "sharding/plan/schedule.h"
#include "sharding/strategy/exchange.h"
#include "sharding/strategy/strategy.h"

namespace tessera {

enum class Pass { forward, backward };

class ParameterStore {
 public:
  virtual ~ParameterStore() = default;
  /// Where this rank's master of a parameter lies; `range` is what it owns of it.
  virtual Tensor make_master(int bucket, int parameter, const Range& range) = 0;
  /// Starts to make a bucket whole, if there is room for it now.
  virtual void prefetch(int bucket, Pass pass) = 0;
  /// Makes a bucket whole and opens its parameters' windows.
  virtual void open(int bucket, Pass pass) = 0;
  /// Closes the windows. `again_in_backward`: a backward pass is going to need the bucket again.
  virtual void close(int bucket, bool again_in_backward) = 0;
  /// The masters have changed.
  virtual void weights_changed() = 0;
};

/// What a store or the gradients work with. The referenced objects must outlive them.
struct BucketResources {
  const Partition& partition;
  const ShardingOptions& options;
  /// Null for strategy `single`.
  Exchange* exchange = nullptr;
  /// One per parameter, bucket by bucket.
  std::vector<Shard>& shards;
  /// In options.reshard_group's groups; null if there are none.
  Exchange* group_exchange = nullptr;
  int rank_in_group = 0;

  /// The shard of a bucket's first parameter.
  Shard* first_shard(int bucket) const;
};

std::unique_ptr<ParameterStore> make_resident_parameters(const BucketResources& resources);
std::unique_ptr<ParameterStore> make_gathered_parameters(const BucketResources& resources);

/// A parameter's whole values within its bucket's buffer.
Tensor window_of(const BucketLayout& bucket, int parameter, const Tensor& buffer);
/// The place of `range` of a parameter within its bucket's buffer.
Tensor place_of(const BucketLayout& bucket, int parameter, const Range& range,
                const Tensor& buffer);
/// Copies, converting if the dtypes differ.
void copy_or_cast(Out to, const Tensor& from);

}  // namespace tessera
