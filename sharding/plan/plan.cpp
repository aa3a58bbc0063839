#include "sharding/plan/plan.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include "runtime/check.h"

namespace tessera {
namespace {

/// One gradient slot is written while the other is reduced.
constexpr int kGradientSlots = 2;

Masters masters_of(const Placement& placement) {
  if (placement.offload != Offload::none) return Masters::on_host;
  const bool computes_with_masters =
      placement.parameters == Held::whole && placement.compute_dtype == placement.master_dtype;
  return computes_with_masters ? Masters::in_buffer : Masters::separate;
}

GradientCase gradient_case_of(const Placement& placement, const ShardingOptions& options,
                              bool communicates) {
  const bool several = options.micro_batches > 1;
  // Without other ranks there is nothing to reduce: micro-batches are summed in the buffer. A tree of
  // sums takes each of them from the buffer.
  const bool reduces_each =
      several && (options.elastic || (options.reduce_every_micro_batch && communicates));
  if (placement.gradients == Held::whole) {
    return reduces_each ? GradientCase::accumulate_from_buffer : GradientCase::reduce_in_place;
  }
  return several && !reduces_each ? GradientCase::sum_then_reduce
                                  : GradientCase::accumulate_from_slot;
}

/// Levels of the tree of micro-batches below the last one, that of the shards' gradients.
int partial_sums_of(const ShardingOptions& options) {
  if (!options.elastic || options.micro_batches == 1) return 0;
  return std::countr_zero(static_cast<unsigned>(options.micro_batches)) - 1;
}

/// The stage of a group.
struct StageUnits {
  int stage = 0;
  /// The model's lowest unit that a backward pass reaches.
  int lowest_trained = 0;
  /// The unit of a head that waits for backward, or -1.
  int deferred_head = -1;
};

GroupPlan make_group(const Placement& placement, const std::vector<Bucket>& buckets,
                     const ShardingOptions& options, const Mesh& mesh, bool communicates,
                     const StageUnits& units) {
  const int shards = mesh.size_along(placement.shard);
  const CutSizes cut = {.experts = mesh.size_along(placement.experts),
                        .tensors = options.tensor_parallel,
                        .sum_parts = sum_parts_of(options)};
  Partition partition(placement.layout, shards, buckets, cut);
  Schedule schedule(partition.buckets(), units.lowest_trained);
  const bool has_head = buckets.back().units.back() == units.deferred_head;
  schedule.deferred = has_head ? 1 : 0;
  // In a pipeline the two ends are on two ranks, so a bucket at both ends runs once.
  if (options.pipeline_parallel > 1) schedule.forward.resize(buckets.size());
  GroupPlan group{.stage = units.stage,
                  .placement = placement,
                  .partition = std::move(partition),
                  .schedule = std::move(schedule),
                  .shards = shards,
                  .replicas = mesh.size_along(placement.replicate),
                  .cut = cut,
                  .masters = masters_of(placement),
                  .gradients = gradient_case_of(placement, options, communicates),
                  .gradients_written = options.experts.sums == ExpertSums::exact ? cut.experts : 1};
  if (placement.parameters == Held::sharded) {
    const bool stays = placement.reshard == Reshard::never;
    group.gather_slots = Slots::assign(group.buckets(), stays ? 0 : options.live_gathers);
  }
  group.gradient_slots =
      Slots::assign(group.buckets(), has_own_buffer(group.gradients) ? 0 : kGradientSlots);
  group.sums_replicas_once = options.sum_replicas_once && options.micro_batches > 1 &&
                             placement.layout != Layout::whole && group.replicas > 1 &&
                             !reduces_once(group.gradients);
  return group;
}

/// Raises Error unless the ranks can share out the parameters as the options say.
void check_cuts(const Units& units, const ShardingOptions& options) {
  const CutSizes sizes = {.experts = options.expert_parallel,
                          .tensors = options.tensor_parallel,
                          .sum_parts = sum_parts_of(options)};
  bool has_experts = false, is_cut = false;
  for (const auto& unit : units) {
    for (const Parameter& parameter : unit->parameters()) {
      check_cut(parameter, sizes);
      has_experts = has_experts || parameter.stacked();
      is_cut = is_cut || is_divided(parameter, sizes);
    }
  }
  check(has_experts || options.expert_parallel == 1,
        "sharding.expert_parallel {} is for a mixture of experts; this model has none",
        options.expert_parallel);
  check(is_cut || options.tensor_parallel == 1,
        "sharding.tensor_parallel {}: this model has no layer that ranks can share out",
        options.tensor_parallel);
}

/// The lowest unit that a backward pass reaches.
int lowest_trained_unit(const Units& units) {
  int lowest = 0;
  for (const auto& unit : units) {
    const std::vector<Parameter>& parameters = unit->parameters();
    if (std::any_of(parameters.begin(), parameters.end(),
                    [](const Parameter& parameter) { return parameter.trainable(); })) {
      break;
    }
    ++lowest;
  }
  return lowest;
}

/// The index of the first placement that equals each one: equal placements form one group.
std::vector<int> first_equal(const std::vector<Placement>& placements) {
  std::vector<int> first;
  for (const Placement& placement : placements) {
    const auto found = std::find(placements.begin(), placements.end(), placement);
    first.push_back(static_cast<int>(found - placements.begin()));
  }
  return first;
}

/// How often a step gathers each bucket.
GatherCounts gathers_of(const GroupPlan& group, const PipelinePlan& pipeline) {
  if (group.placement.parameters == Held::sharded) {
    return gathers_per_step(group.schedule, group.gather_slots, pipeline.passes_of(group.stage));
  }
  const auto buckets = static_cast<std::size_t>(group.bucket_count());
  const int once = group.placement.layout == Layout::whole ? 0 : 1;
  return {std::vector<int>(buckets, once), std::vector<int>(buckets, 0)};
}

int stage_of_unit(const PipelinePlan& pipeline, int unit) {
  const auto found = std::find_if(pipeline.stages.begin(), pipeline.stages.end(),
                                  [&](const PartRange& stage) { return unit < stage.last; });
  return static_cast<int>(found - pipeline.stages.begin());
}

/// Leaves of a row that each rank sums by itself.
int token_leaves_of(const ShardingOptions& options) {
  return options.grid > 0 ? options.grid / options.context_parallel : 1;
}

/// Raises Error unless the pipeline can have the ends of tied units on two ranks.
void check_tied_ends(const ShardingOptions& options) {
  check(options.micro_batches == 1 || options.reduce_every_micro_batch,
        "sharding.reduce: tied embedding and head are on two stages of the pipeline, and their "
        "gradients are added after each micro-batch; choose every_micro_batch");
}

PipelinePlan pipeline_of(const Units& units, const ShardingOptions& options, int ranks) {
  PipelinePlan pipeline{.shape = {.ranks = options.pipeline_parallel,
                                  .micro_batches = options.micro_batches,
                                  .chunks = options.pipeline_chunks}};
  if (pipeline.has_several()) pipeline.schedule = options.pipeline_schedule;
  const int stages = options.pipeline_parallel * options.pipeline_chunks;
  pipeline.stages = cut_stages(units, options.pipeline_stages, stages, options.experts_per_token);
  pipeline.first_trained = stage_of_unit(pipeline, lowest_trained_unit(units));
  pipeline.message_elements = options.activations / options.micro_batches /
                              batch_ranks(options, ranks) / options.context_parallel;
  const std::int64_t rows = options.tensor_traffic.rows / options.micro_batches /
                            batch_ranks(options, ranks) / options.context_parallel;
  if (rows % sum_parts_of(options) == 0) pipeline.message_elements /= options.tensor_parallel;
  pipeline.message_dtype = options.compute_dtype;
  pipeline.counters = options.stage_counters;
  if (!pipeline.has_several()) return pipeline;
  pipeline_order(pipeline.schedule, pipeline.shape);  // checks the shape
  check(!pipeline.splits_backward() || options.micro_batches == 1 ||
            !options.reduce_every_micro_batch,
        "sharding.pipeline_schedule zero_bubble computes gradients of weights late, when those of "
        "other micro-batches are in the same memory; set sharding.reduce=last_micro_batch");
  if (!units.front()->at_both_ends()) return pipeline;
  check_tied_ends(options);
  const CutSizes sizes = {.tensors = options.tensor_parallel, .sum_parts = sum_parts_of(options)};
  for (const Parameter& parameter : units.front()->parameters()) {
    const bool is_table = parameter.cut().divided == Divided::vocabulary;
    pipeline.tied.push_back({.parameter = parameter,
                             .shape = held_shape(parameter, sizes),
                             .leaves = is_table ? token_leaves_of(options) : 1});
  }
  return pipeline;
}

/// The two ends compute in one dtype.
void check_tied_dtype(const GroupPlan& group, const PipelinePlan& pipeline) {
  for (const BucketLayout& bucket : group.buckets()) {
    check(pipeline.tied.empty() || !bucket.at_both_ends ||
              group.placement.compute_dtype == pipeline.message_dtype,
          "sharding.rules: unit '{}' is tied and on two stages of the pipeline; it computes in {} "
          "as the rest",
          bucket.name, name_of(pipeline.message_dtype));
  }
}

/// The units at which a bucket must begin: those of stages, and a head, which runs apart.
std::vector<int> bucket_starts(const PipelinePlan& pipeline) {
  std::vector<int> starts;
  if (!pipeline.has_several()) return starts;
  for (const PartRange& stage : pipeline.stages) starts.push_back(stage.first);
  starts.push_back(pipeline.stages.back().last - 1);
  return starts;
}

/// Block b is unit b + 1. Each forward pass gathers; backward gathers once more, and reduces.
void add_key_traffic(Plan& plan, const ShardingOptions& options, int lowest_trained) {
  const auto& [elements, forward_passes] = options.keys_and_values;
  plan.keys.assign(static_cast<std::size_t>(plan.pipeline.shape.ranks), {});
  // A tensor rank has the keys of its heads.
  const Cut& cut = options.tensor_traffic.keys;
  const HeldPieces held =
      held_pieces(cut, options.tensor_parallel, sum_parts_of(options) / options.tensor_parallel);
  const std::int64_t of_ranks =
      elements / plan.batch_ranks() / cut.pieces * held.pieces * held.copies;
  for (int unit = 1; unit <= std::ssize(forward_passes); ++unit) {
    const int stage = stage_of_unit(plan.pipeline, unit);
    Plan::Keys& keys = plan.keys[static_cast<std::size_t>(plan.pipeline.rank_of(stage))];
    const bool goes_backward = unit >= lowest_trained;
    const int passes = forward_passes[static_cast<std::size_t>(unit - 1)];
    keys.gathered += (goes_backward ? passes + 1 : 1) * of_ranks;
    keys.reduced += goes_backward ? of_ranks : 0;
  }
  plan.key_bytes = static_cast<std::int64_t>(size_of(options.compute_dtype));
}

bool has_experts(const Unit& unit) {
  const std::vector<Parameter>& parameters = unit.parameters();
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const Parameter& parameter) { return parameter.stacked(); });
}

/// The rows that the tensor ranks of each place along the pipeline exchange. Block b is unit b + 1.
void add_tensor_traffic(Plan& plan, const Units& units, const ShardingOptions& options) {
  TensorTraffic none = options.tensor_traffic;
  none.rows /= plan.micro_batches * plan.batch_ranks() * plan.context_ranks;
  none.forward_passes.clear();
  none.row_exchange = options.row_exchange;
  none.embeds = none.has_head = false;
  plan.tensor_traffic.assign(static_cast<std::size_t>(plan.pipeline.shape.ranks), none);
  const std::vector<int>& of_blocks = options.tensor_traffic.forward_passes;
  for (int stage = 0; stage < plan.pipeline.stage_count(); ++stage) {
    const int place = plan.pipeline.rank_of(stage);
    TensorTraffic& traffic = plan.tensor_traffic[static_cast<std::size_t>(place)];
    const auto [first, last] = plan.pipeline.stages[static_cast<std::size_t>(stage)];
    for (int part = std::max(first, 1); part < last && part <= std::ssize(of_blocks); ++part) {
      const bool mixture = has_experts(*units[static_cast<std::size_t>(part)]);
      (mixture ? traffic.mixture_passes : traffic.forward_passes)
          .push_back(of_blocks[static_cast<std::size_t>(part - 1)]);
    }
    if (stage == 0) traffic.embeds = true;
    if (plan.pipeline.is_last(stage)) traffic.has_head = true;
  }
}

Axes norm_axes_of(const Plan& plan) {
  const Axes owners = plan.groups.front().placement.owners();
  const bool same = std::all_of(plan.groups.begin(), plan.groups.end(),
                                [&](const GroupPlan& g) { return g.placement.owners() == owners; });
  // Tensor ranks, and the stages of a pipeline, own different elements too.
  const bool data_only = plan.mesh.size_along(data_axes(plan.mesh)) == plan.mesh.world_size();
  if (same && data_only) return owners;
  Axes all;
  for (const Axis& axis : plan.mesh.axes) all.push_back(axis.name);
  return all;
}

}  // namespace

bool has_own_buffer(GradientCase gradients) {
  return gradients != GradientCase::accumulate_from_slot;
}

bool reduces_once(GradientCase gradients) {
  return gradients == GradientCase::reduce_in_place || gradients == GradientCase::sum_then_reduce;
}

ReshardGroup GroupPlan::reshard_group_of(int shard) const {
  return {.number = shard / placement.reshard_ranks, .position = shard % placement.reshard_ranks};
}

int GroupPlan::collective_buffers() const {
  const bool sends_narrow = placement.reduce_dtype != placement.gradient_dtype;
  return (gathers_in_place() ? bucket_count() : gather_slots.count) +
         (sends_narrow ? 1 : gradient_slots.count);
}

bool GroupPlan::lies_in_buffer(const Parameter& parameter) const {
  return masters == Masters::in_buffer ||
         (placement.parameters == Held::whole && !parameter.trainable());
}

DType GroupPlan::own_dtype(const Parameter& parameter) const {
  return parameter.trainable() ? placement.master_dtype : placement.compute_dtype;
}

bool Plan::counts_choices(int rank) const {
  return mesh.place(rank, "tensor") == 0;
}

bool Plan::counts_in_loss(int rank) const {
  return counts_choices(rank) && pipeline_rank(rank) == pipeline.shape.ranks - 1;
}

int Plan::pipeline_rank(int rank) const {
  return mesh.place(rank, "pipeline");
}

TokenCut Plan::token_cut(int rank) const {
  return {.ranks = context_ranks,
          .rank = mesh.has("context") ? mesh.position_along(rank, {"context"}) : 0,
          .leaves = token_leaves};
}

bool Plan::counts_in_norm(const GroupPlan& group, int rank) const {
  return norm_axes == group.placement.owners() ||
         mesh.position_along(rank, group.placement.replicate) == 0;
}

Plan make_plan(const Units& units, const ShardingOptions& options, const Machine& machine) {
  check_options(options, machine);
  check_cuts(units, options);
  Plan plan{.mesh = mesh_of(options, machine),
            .communicates = options.strategy != StrategyKind::single,
            .micro_batches = options.micro_batches,
            .experts = options.experts,
            .row_exchange = options.row_exchange,
            .elastic = options.elastic,
            .grid = options.grid > 0,
            .partial_sums = partial_sums_of(options),
            .live_gathers = options.live_gathers,
            .prefetch_in_forward = options.prefetch_in_forward,
            .prefetch_in_backward = options.prefetch_in_backward,
            .counters = options.counters,
            .watched_units = options.watches ? static_cast<std::int64_t>(units.size()) : 0,
            .maxima = options.maxima_per_unit * static_cast<std::int64_t>(units.size()),
            .rounded_tensors = options.rounded_tensors,
            .loss_numbers = options.loss_numbers,
            .context_ranks = options.context_parallel,
            .token_leaves = token_leaves_of(options),
            .key_exchange = options.key_exchange};
  const std::vector<Placement> placements = placements_of(options, plan.mesh, machine.device);
  const std::vector<int> first = first_equal(placements);
  check(!units.empty(), "the model has no units");
  plan.pipeline = pipeline_of(units, options, machine.ranks);
  std::map<std::pair<int, int>, std::vector<Bucket>> by_stage_and_placement;
  for (Bucket& bucket : make_buckets(
           units, options.buckets,
           [&](const Parameter& parameter) { return first[placement_of(options, parameter)]; },
           bucket_starts(plan.pipeline))) {
    const int stage = stage_of_unit(plan.pipeline, bucket.units.front());
    by_stage_and_placement[{stage, bucket.placement}].push_back(std::move(bucket));
  }
  plan.sum_parts = sum_parts_of(options);
  StageUnits stage{.lowest_trained = lowest_trained_unit(units)};
  if (plan.pipeline.has_several()) stage.deferred_head = part_count(units) - 1;
  for (const auto& [key, buckets] : by_stage_and_placement) {
    stage.stage = key.first;
    plan.groups.push_back(
        make_group(placements[key.second], buckets, options, plan.mesh, plan.communicates, stage));
    GroupPlan& group = plan.groups.back();
    group.gathers = gathers_of(group, plan.pipeline);
    group.matrices = plan_matrices(group, plan.mesh, options);
  }
  for (const GroupPlan& group : plan.groups) check_tied_dtype(group, plan.pipeline);
  plan.norm_axes = norm_axes_of(plan);
  add_key_traffic(plan, options, lowest_trained_unit(units));
  add_tensor_traffic(plan, units, options);
  return plan;
}

}  // namespace tessera
