// Traffic: the bytes that one rank sends in a step, by closed formulas, and the ranks that they go to.
//
// The decisions come from the plan; docs/sharding_cost.md derives the formulas. The communicators measure the same
// sums.
#pragma once

#include <vector>

#include "sharding/plan/plan.h"

namespace tessera {

/// The bytes that one rank sends in a step in the collectives of one kind and one group of ranks.
struct Flow {
  /// The ranks of the group, and the difference between the numbers of neighbours in it.
  int ranks = 1;
  int stride = 1;
  /// Whether the receivers add (reductions) or copy.
  bool adds = false;
  double bytes = 0.0;
};

/// The traffic of `rank`, kind by kind: the same kinds in the same order for every rank. The sum of
/// the flows is Footprint::bytes_sent.
std::vector<Flow> traffic_of(const Plan& plan, int rank);

}  // namespace tessera
