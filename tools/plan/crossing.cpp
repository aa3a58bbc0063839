#include "tools/plan/crossing.h"

#include <algorithm>

#include "sharding/plan/footprint.h"
#include "sharding/plan/placement.h"

namespace tessera {
namespace {

/// What leaves the node of what goes to a group, `on_node` of whose ranks are on each node.
double share_across(int group, int on_node) {
  return group == 1 ? 0.0 : static_cast<double>(group - on_node) / (group - 1);
}

/// What a rank sends within its row: all that it would send if there were no other rows.
double bytes_in_row(const Units& units, const ShardingOptions& options, int shards) {
  ShardingOptions row = options;
  row.strategy = StrategyKind::fsdp;
  row.shard_size = 0;
  double sum = 0.0;
  for (int shard = 0; shard < shards; ++shard) {
    sum += static_cast<double>(footprint_of(units, row, shards, shard).bytes_sent);
  }
  const double losses = 4.0 * 2.0 * (shards - 1);  // f32, there and back, of all ranks
  return (sum - losses) / shards;
}

}  // namespace

std::optional<double> bytes_across_nodes(const Units& units, const ShardingOptions& options,
                                         int ranks, int ranks_per_node, double bytes_sent) {
  const Mesh mesh = mesh_of(options, {.ranks = ranks, .ranks_per_node = ranks_per_node});
  const int shards = mesh.size_along({"shard"});
  const int replicas = mesh.size_along({"replica"});
  const bool rows_in_nodes = ranks_per_node % shards == 0;
  const bool nodes_in_rows = shards % ranks_per_node == 0;
  if (!rows_in_nodes && !nodes_in_rows) return std::nullopt;
  double in_row = 0.0;
  if (replicas == 1) {
    in_row = bytes_sent;
  } else if (shards > 1) {
    in_row = bytes_in_row(units, options, shards);
  }
  const int row_on_node = std::min(shards, ranks_per_node);
  const int column_on_node = std::max(1, ranks_per_node / shards);
  return in_row * share_across(shards, row_on_node) +
         (bytes_sent - in_row) * share_across(replicas, column_on_node);
}

}  // namespace tessera
