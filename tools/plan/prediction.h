// Prediction: the footprints of all ranks of a plan.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "models/transformer_shape.h"
#include "sharding/plan/crossing.h"
#include "sharding/plan/expert_traffic.h"
#include "sharding/plan/footprint.h"

namespace tessera {

/// One figure over all ranks.
struct Spread {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  std::int64_t most = 0;
  double sum = 0.0;
  int ranks = 0;

  void add(std::int64_t value) {
    least = std::min(least, value);
    most = std::max(most, value);
    sum += static_cast<double>(value);
    ++ranks;
  }
  double mean() const { return sum / ranks; }
};

struct Prediction {
  Spread parameters, gradients, optimizer, slots;
  /// Parameters, gradients, optimizer and slots of one rank.
  Spread total;
  /// The first rank with the largest total.
  int fullest_rank = 0;
  Spread on_host, bytes_sent;
  /// Mean bytes per rank that leave a node. No value on one node, or if nodes cut groups unevenly.
  std::optional<Crossing> leaves_node;
};

/// `ranks_per_node` is 0 on one node.
Prediction predict(const Plan& plan, int ranks_per_node, const StateBytes& state);

/// The traffic of one of the model's layers with experts.
ExpertTraffic expert_traffic(const TransformerShape& shape, const ShardingOptions& sharding);

/// The bytes that a rank sends in a step for rows on their way to experts and back, if every expert
/// gets equally many. `tokens` of this rank in a micro-batch; `recomputed` layers with experts are
/// computed again in backward.
std::int64_t balanced_bytes(const ExpertTraffic& traffic, const TransformerShape& shape,
                            std::int64_t tokens, std::int64_t micro_batches,
                            std::int64_t recomputed);

}  // namespace tessera
