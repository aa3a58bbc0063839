#include "sharding/strategy/exchange.h"

#include "runtime/check.h"
#include "sharding/strategy/exchange/all_reduce.h"
#include "sharding/strategy/exchange/owners.h"
#include "sharding/strategy/exchange/slices.h"

namespace tessera {

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
