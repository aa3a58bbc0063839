// Plan: every decision about sharding, made once before training.
//
// A plan is a value. It is computed from the units' shapes, the options and the size of the job, and
// needs no ranks and no memory. The strategy carries it out, the footprint adds up its sizes, and
// `tessera plan` prints it. Each of them switches over the named cases below.
#pragma once

#include <string>
#include <vector>

#include "autograd/context_axis.h"
#include "sharding/plan/partition.h"
#include "sharding/plan/placement.h"
#include "sharding/plan/schedule.h"
#include "sharding/plan/stages.h"
#include "sharding/plan/whole_matrices.h"

namespace tessera {

/// Where the masters of a rank's own part lie. Frozen parameters have no masters: their own part
/// is in the compute dtype, and in the buffer if parameters are held whole.
enum class Masters {
  in_buffer,  // windows into the whole buffers that units compute with: an update is in place
  separate,   // memory of their own on the device; copied before use, and rounded if necessary
  on_host,    // host memory; see sharding/strategy/offload/host_values.h
};

/// Where a bucket's gradients are written, when they are reduced, and where the sums are kept.
///
///                          backward writes to   reduced            the shards' gradients are
///   reduce_in_place        the bucket's buffer  once a step        windows into the buffer
///   sum_then_reduce        the bucket's buffer  once a step        memory of their own
///   accumulate_from_buffer the bucket's buffer  each micro-batch   memory of their own, added to
///   accumulate_from_slot   one of two slots     each micro-batch   memory of their own, added to
enum class GradientCase {
  reduce_in_place,
  sum_then_reduce,
  accumulate_from_buffer,
  accumulate_from_slot,
};

/// Whether each bucket has a gradient buffer of its own, or shares two slots.
bool has_own_buffer(GradientCase gradients);
/// Whether micro-batches are summed in the buffer and reduced once, after the last.
bool reduces_once(GradientCase gradients);

/// The group of a rank for Reshard::to_groups.
struct ReshardGroup {
  /// The group's number: group 0 has shards 0 to k - 1, group 1 the next k.
  int number = 0;
  int position = 0;
};

/// The buckets of one placement: FSDP2's parameter group, except that it covers the whole model, or a
/// stage of a pipeline.
struct GroupPlan {
  int stage = 0;
  Placement placement;
  Partition partition;
  Schedule schedule;
  /// Sizes of the mesh along placement.shard and placement.replicate.
  int shards = 1;
  int replicas = 1;
  /// The ranks that share out these parameters (held_part.h).
  CutSizes cut = {};
  /// The slots that buckets are gathered into; empty if parameters are held whole.
  Slots gather_slots;
  /// How often each bucket is gathered in a step.
  GatherCounts gathers;
  Masters masters = Masters::in_buffer;
  GradientCase gradients = GradientCase::reduce_in_place;
  /// Gradients of each parameter that backward writes: with ExpertSums::exact one for each rank that rows came
  /// from.
  int gradients_written = 1;
  Slots gradient_slots;
  /// The sum across replicas waits for the last micro-batch.
  bool sums_replicas_once = false;
  /// Those that the optimizer needs whole.
  MatrixPlan matrices = {};

  const std::vector<BucketLayout>& buckets() const { return partition.buckets(); }
  /// Ranks that share out the experts of this group; 1 for other parameters.
  int expert_ranks() const { return cut.experts; }
  int bucket_count() const { return static_cast<int>(buckets().size()); }
  ReshardGroup reshard_group_of(int shard) const;
  /// Whether the bucket's buffers hold all values, and ranks gather what others have updated: ZeRO-1 and 2.
  bool gathers_in_place() const {
    return placement.parameters == Held::whole && placement.layout != Layout::whole;
  }
  /// Buffers that ranks gather into or reduce (Communicator::buffer).
  int collective_buffers() const;
  /// Whether the rank's own part of a parameter is a window into its bucket's buffer.
  bool lies_in_buffer(const Parameter& parameter) const;
  /// The dtype of the rank's own part.
  DType own_dtype(const Parameter& parameter) const;
};

struct Plan {
  Mesh mesh;
  PipelinePlan pipeline;
  /// Those of the first stage, then of the next.
  std::vector<GroupPlan> groups;
  /// False for strategy single: ranks send nothing, and no communicator is needed.
  bool communicates = true;
  /// The gradient norm is a sum over the ranks along these axes; see counts_in_norm.
  Axes norm_axes;
  int micro_batches = 1;
  /// As ShardingOptions::experts.
  ExpertChoices experts = {};
  /// Parts of a sum that tensor ranks divide (TensorAxis).
  int sum_parts = 1;
  /// As ShardingOptions::row_exchange.
  RowExchange row_exchange = RowExchange::together;
  /// As ShardingOptions::elastic.
  bool elastic = false;
  /// Whether sums over tokens are those of a fixed number of leaves (ShardingOptions::grid).
  bool grid = false;
  /// Sums of micro-batches that a rank keeps in addition to the shards' gradients.
  int partial_sums = 0;
  /// Prefetching keeps at most this many inner buckets of a group gathered.
  int live_gathers = 2;
  bool prefetch_in_forward = true;
  bool prefetch_in_backward = true;
  /// As in ShardingOptions.
  std::int64_t counters = 0;
  /// Units with readings in a watched step; 0: no step is watched.
  std::int64_t watched_units = 0;
  /// Largest activations and attention logits that the ranks combine in a step.
  std::int64_t maxima = 0;
  std::int64_t rounded_tensors = 0;
  std::int64_t loss_numbers = 1;

  /// The ranks that compute different rows of a batch, and the place of `rank` among them.
  int batch_ranks() const { return mesh.size_along(batch_axes(mesh)); }
  int batch_rank(int rank) const { return mesh.position_along(rank, batch_axes(mesh)); }
  /// The place of `rank` along the pipeline.
  int pipeline_rank(int rank) const;
  /// Whether the group is of a stage of `rank`.
  bool holds(const GroupPlan& group, int rank) const {
    return pipeline.rank_of(group.stage) == pipeline_rank(rank);
  }
  /// Backward passes of a rank in a step, one for each of its stages.
  int passes() const { return micro_batches * pipeline.shape.chunks; }
  /// Ranks that share out the tokens of every row, and the leaves of a row that each of them sums by
  /// itself (autograd/context_axis.h).
  int context_ranks = 1;
  int token_leaves = 1;
  /// Whether rows are cut, for several ranks or for sums that do not depend on their number.
  bool cuts_rows() const { return context_ranks * token_leaves > 1; }
  TokenCut token_cut(int rank) const;
  KeyExchange key_exchange = KeyExchange::gather;
  /// Elements of keys and values that the ranks of one batch rank gather in a step, and of their f32
  /// gradients that they reduce.
  struct Keys {
    std::int64_t gathered = 0, reduced = 0;
  };
  /// By place along the pipeline.
  std::vector<Keys> keys = {};
  /// Bytes of an element.
  std::int64_t key_bytes = 4;
  /// The rows that tensor ranks exchange in a micro-batch, by place along the pipeline.
  std::vector<TensorTraffic> tensor_traffic = {};
  /// How many losses a rank contributes to the sum over ranks: one per micro-batch, or their sum. In
  /// trees of leaves a micro-batch is a subtree.
  int losses() const { return elastic || grid ? micro_batches : 1; }
  /// Whether `rank` adds its routers' losses and counts to the sums over all ranks: of tensor ranks, which
  /// route the same rows, the first.
  bool counts_choices(int rank) const;
  /// Whether `rank` adds its losses to the sum over all ranks: of tensor ranks, which have the same
  /// losses, the first, in the last stage of a pipeline.
  bool counts_in_loss(int rank) const;
  /// Whether `rank` adds its part of a group's gradients to the norm. Where the ranks along
  /// norm_axes hold the same part, the first of them does.
  bool counts_in_norm(const GroupPlan& group, int rank) const;
};

/// Raises Error if the options contradict each other or do not suit the machine, or if the model
/// has no parameters or lists one in two units.
Plan make_plan(const Units& units, const ShardingOptions& options, const Machine& machine);

/// The mesh, and a paragraph per group: its placement, and where everything lies.
std::string to_string(const Plan& plan);

}  // namespace tessera
