#include "tools/plan/prediction.h"

#include <vector>

namespace tessera {

Prediction predict(const Plan& plan, int ranks_per_node, const StateBytes& state) {
  const int ranks = plan.mesh.world_size();
  Prediction all;
  std::vector<Flow> mean;
  for (int rank = 0; rank < ranks; ++rank) {
    const Footprint one = footprint_of(plan, rank, state);
    all.parameters.add(one.parameters);
    all.gradients.add(one.gradients);
    all.optimizer.add(one.optimizer);
    all.slots.add(one.communication);
    const std::int64_t total = one.parameters + one.gradients + one.optimizer + one.communication;
    if (total > all.total.most) all.fullest_rank = rank;
    all.total.add(total);
    all.on_host.add(one.host.parameters + one.host.gradients + one.host.optimizer);
    all.bytes_sent.add(one.bytes_sent);
    if (ranks_per_node == 0) continue;
    const std::vector<Flow> flows = traffic_of(plan, rank);
    if (mean.empty()) mean.resize(flows.size());
    for (std::size_t i = 0; i < flows.size(); ++i) {
      const double bytes = mean[i].bytes + flows[i].bytes / ranks;
      mean[i] = flows[i];
      mean[i].bytes = bytes;
    }
  }
  if (ranks_per_node > 0) all.leaves_node = bytes_across_nodes(mean, ranks_per_node);
  return all;
}

ExpertTraffic expert_traffic(const TransformerShape& shape, const ShardingOptions& sharding) {
  const int parts = sum_parts_of(sharding);
  return {.ranks = sharding.expert_parallel,
          .experts = shape.experts.count,
          .pieces = sharding.grid > 0 ? sharding.grid / sharding.context_parallel
                                      : sharding.experts.pieces,
          .copies = sharding.experts.copies,
          .channels = shape.width,
          .weighed = shape.experts.weighed,
          .dtype = sharding.compute_dtype,
          .parts = parts > 1 ? parts / sharding.tensor_parallel : 0};
}

std::int64_t balanced_bytes(const ExpertTraffic& traffic, const TransformerShape& shape,
                            std::int64_t tokens, std::int64_t micro_batches,
                            std::int64_t recomputed) {
  const TravellingRows rows = balanced_rows(traffic, tokens, shape.experts.per_token);
  return micro_batches * ((shape.experts.layers + recomputed) * traffic.forward(rows) +
                          shape.experts.layers * traffic.backward(rows));
}

}  // namespace tessera
