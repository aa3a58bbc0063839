// Placement: where a bucket's parameters, gradients and masters are, over a mesh.
//
// A strategy is a name for a placement of every parameter. On a mesh of replicas x shards, where
// "both" stands for both axes, the strategies are:
//
//            sharded over  replicated over  layout           parameters  gradients
//   single   -             -                whole            whole       whole
//   ddp      -             both             whole            whole       whole
//   zero1    both          -                flat             whole       whole
//   zero2    both          -                flat             whole       sharded
//   zero3    both          -                tensors          sharded     sharded
//   fsdp     both          -                rows, or flat    sharded     sharded
//   hsdp     shard         replica          rows, or flat    sharded     sharded
//
// The mesh is N x 1 for ddp, 1 x N for zero and fsdp, and R x F for hsdp. If E ranks share out
// experts, the mesh has one more axis at its end, "expert", of E ranks. A layer's experts are cut
// over it, and each part is placed over the other axes by the same table, except that its gradients
// are never kept whole. For all other parameters the axis "expert" counts as a part of "shard", or
// of "replica" if there are no shards:
//
//   fsdp, 8 ranks, E = 4     replica 1 x shard 2 x expert 4
//     experts                cut over expert, sharded over replica and shard: 1/4, then 1/2 of that
//     all others             sharded over replica, shard and expert: 1/8
//
// Rules give parameters with certain names another placement (options.h). For example, one model
// may keep its small parameters whole under ddp and shard the rest. Another may shard its experts
// within a node, and the rest over all ranks. The first rule that matches a parameter's name
// places it.
//
// Replicas, shards, context and expert ranks are the data ranks. With tensor parallelism the table
// places the part of each parameter that a tensor rank holds (held_part.h), and with pipeline
// parallelism the parameters of each stage, over the data ranks alone. Ranks that share out tokens
// hold the same parameters, so "context" counts as a part of "shard" or "replica" too.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "autograd/parameter.h"
#include "sharding/plan/mesh.h"
#include "sharding/plan/options.h"

namespace tessera {

/// How a bucket's buffer is cut into one part per shard; see partition.h.
enum class Layout { whole, tensors, rows, flat };

template <>
inline constexpr EnumNames<Layout> kEnumNames<Layout> = {"layout",
                                                         {"whole", "tensors", "rows", "flat"}};

inline std::string_view name_of(Layout layout) {
  return enum_name(layout);
}

/// The share of a bucket that a rank holds between uses: all of it, or its own part.
enum class Held { whole, sharded };

/// The fate of a gathered bucket after forward.
enum class Reshard {
  to_all,     // each rank keeps its own part; backward gathers from all shards
  to_groups,  // each rank keeps 1/k; backward gathers among k neighbours
  never,      // the bucket stays gathered until the weights change
};

struct Placement {
  /// "fsdp", "hsdp flat": for tables and messages.
  std::string name;
  /// The bucket is cut over the axes `shard`. Along `replicate`, ranks hold the same part and sum
  /// its gradients.
  Axes shard;
  Axes replicate;
  Layout layout = Layout::whole;
  Held parameters = Held::whole;
  Held gradients = Held::whole;
  Reshard reshard = Reshard::to_all;
  /// Ranks per group, for Reshard::to_groups.
  int reshard_ranks = 1;
  /// The dtype of parameters' values where they are no masters: u8 if they are packed, and unpacked for each product.
  DType compute_dtype = DType::f32;
  /// That of the windows that units compute with (Parameter::data), and of gathers: compute_dtype, or e4m3 for
  /// parameters that are rounded (Parameter::rounded) from values stored elsewhere.
  DType window_dtype = DType::f32;
  DType master_dtype = DType::f32;
  DType gradient_dtype = DType::f32;
  DType reduce_dtype = DType::f32;
  Offload offload = Offload::none;
  /// The axis that experts are cut over; empty for other parameters. The rest of the placement
  /// applies to the experts that a rank holds.
  Axes experts = {};

  /// The axes along which ranks own different elements.
  Axes owners() const;
  bool operator==(const Placement&) const = default;
};

/// The mesh {"replica", R}, {"shard", S} that the options ask for. It has the axes "pipeline",
/// "context", "expert" and "tensor" too where they have several ranks.
Mesh mesh_of(const ShardingOptions& options, const Machine& machine);
/// The data axes of a mesh.
Axes data_axes(const Mesh& mesh);
/// The data axes along which ranks compute different rows of a batch.
Axes batch_axes(const Mesh& mesh);
/// Ranks that share one replica of the parameters that are not experts.
int replica_size(const Mesh& mesh);

/// The placements that the options name: first that of the strategy, then one per rule. With expert
/// parallelism the same placements follow again, for experts; then all of them for packed parameters, for rounded
/// ones, and for rounded ones that are frozen.
std::vector<Placement> placements_of(const ShardingOptions& options, const Mesh& mesh,
                                     const Device& device);

/// Raises Error if the options contradict each other or do not suit the machine.
void check_options(const ShardingOptions& options, const Machine& machine);

/// Index into placements_of() of the parameter's placement.
int placement_of(const ShardingOptions& options, const Parameter& parameter);

}  // namespace tessera
