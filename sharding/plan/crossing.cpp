#include "sharding/plan/crossing.h"

#include <algorithm>
#include <bit>

namespace tessera {
namespace {

/// The ranks of one group that are on the same node; no value if that differs between groups.
std::optional<int> ranks_on_node(const Flow& flow, int ranks_per_node) {
  const auto divides = [](int a, int b) { return a % b == 0 || b % a == 0; };
  const int span = flow.ranks * flow.stride;
  if (!divides(flow.stride, ranks_per_node) || !divides(span, ranks_per_node)) return std::nullopt;
  return std::clamp(ranks_per_node / flow.stride, 1, flow.ranks);
}

}  // namespace

Crossing crossing_of(const Flow& flow, int on_node) {
  if (on_node == flow.ranks) return {};
  const double others = flow.ranks - 1;
  const bool adds_on_node_first = flow.adds && std::has_single_bit(static_cast<unsigned>(on_node));
  const double direct = adds_on_node_first ? static_cast<double>(flow.ranks) / on_node - 1.0
                                           : static_cast<double>(flow.ranks - on_node);
  return {.direct = flow.bytes * direct / others, .rings = flow.bytes / on_node};
}

std::optional<Crossing> bytes_across_nodes(const std::vector<Flow>& flows, int ranks_per_node) {
  Crossing sum;
  for (const Flow& flow : flows) {
    const std::optional<int> on_node = ranks_on_node(flow, ranks_per_node);
    if (!on_node) return std::nullopt;
    const Crossing one = crossing_of(flow, *on_node);
    sum.direct += one.direct;
    sum.rings += one.rings;
  }
  return sum;
}

}  // namespace tessera
