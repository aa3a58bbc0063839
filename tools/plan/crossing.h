// How much of what ranks send leaves their node.
//
// On a mesh (sharding/plan/mesh.h) a rank sends within its row, to the ranks that share the model with
// it, and within its column, to those that hold the same part of it. Ranks are numbered node by
// node. Collectives send a group's other members equal parts, on average over the ranks, so that of
// what goes to a group of G ranks, m of them on each node, (G - m) / (G - 1) leaves the node.
#pragma once

#include <optional>

#include "autograd/unit.h"
#include "sharding/plan/options.h"

namespace tessera {

/// Of the `bytes_sent` that a rank sends in a step, mean over the ranks, how many leave its node.
/// Nothing if some rows are cut by the nodes' borders and others not. (The loss, a few bytes among
/// all ranks, is taken for traffic of the column.)
std::optional<double> bytes_across_nodes(const Units& units, const ShardingOptions& options,
                                         int ranks, int ranks_per_node, double bytes_sent);

}  // namespace tessera
