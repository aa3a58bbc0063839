// The part of a step's traffic that leaves a node.
//
// Ranks are numbered node by node. A flow (sharding/plan/traffic.h) has G ranks, m of them on each
// node. Two ways of carrying it are counted:
//
//   direct   MPI, threads, and NCCL with sharding.deterministic. Every rank sends to every other one,
//            so (G - m) / (G - 1) of the bytes leave the node. Reductions add inside a node first
//            where m is a power of two, and send one m-th across: (G/m - 1) / (G - 1).
//   rings    NCCL's default. Every rank sends to its neighbour, and one rank of m has its neighbour
//            on another node: 1 / m.
#pragma once

#include <optional>
#include <vector>

#include "sharding/plan/traffic.h"

namespace tessera {

struct Crossing {
  double direct = 0.0;
  double rings = 0.0;
};

/// The bytes of one flow that leave a node where `on_node` ranks of each group are.
Crossing crossing_of(const Flow& flow, int on_node);

/// Bytes of the flows that leave a node, as the mean over the ranks. No value if the nodes' borders
/// cut some groups of ranks and not others.
std::optional<Crossing> bytes_across_nodes(const std::vector<Flow>& flows, int ranks_per_node);

}  // namespace tessera
