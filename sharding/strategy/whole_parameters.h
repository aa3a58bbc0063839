// Whole parameters, for checkpoints that other programs read and for comparisons.
#pragma once

#include "sharding/comm/communicator.h"
#include "sharding/shard.h"
#include "sharding/strategy/group_resources.h"

namespace tessera {

/// Gathers the masters of a group bucket by bucket in f32, and calls `visit` with each parameter that
/// `includes` takes. A collective. `experts` and `tensors`: the ranks that share parameters out, or null.
void visit_whole_parameters(const GroupResources& resources, Communicator* experts,
                            Communicator* tensors, const ShardedParameters::Visit& visit,
                            const ShardedParameters::Includes& includes);

}  // namespace tessera
