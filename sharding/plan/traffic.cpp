#include "sharding/plan/traffic.h"

#include <algorithm>

#include "kernels/gradient_norm/op.h"
#include "sharding/share.h"

namespace tessera {
namespace {

std::int64_t size(DType dtype) {
  return static_cast<std::int64_t>(size_of(dtype));
}

// Elements that one rank of `ranks` sends.

/// all_gather and reduce_scatter: a part to, or for, every other rank.
std::int64_t sent_by_slices(std::int64_t elements, int ranks) {
  return elements / ranks * (ranks - 1);
}

/// Bytes of one kind of reduction: sent to be added, and sent as sums.
struct Reduced {
  std::int64_t added = 0;
  std::int64_t copied = 0;

  Reduced& operator+=(const Reduced& other) {
    added += other.added;
    copied += other.copied;
    return *this;
  }
};

/// The other ranks' shares to them, then the own sum to all.
Reduced sent_by_all_reduce(std::int64_t elements, int ranks, int rank) {
  const std::int64_t own = share_of(elements, rank, ranks).count();
  return {.added = elements - own, .copied = own * (ranks - 1)};
}

std::int64_t sent_by_broadcast(std::int64_t elements, int ranks, int rank, int root) {
  return rank == root ? elements * (ranks - 1) : 0;
}

/// The other ranks' shares to them, then the own sum to the root.
Reduced sent_by_reduce(std::int64_t elements, int ranks, int rank, int root) {
  const std::int64_t own = share_of(elements, rank, ranks).count();
  return {.added = elements - own, .copied = rank == root ? 0 : own};
}

/// The difference between the numbers of neighbours along `along`: the ranks of all later axes.
int stride_along(const Mesh& mesh, const Axes& along) {
  int stride = 1;
  for (auto axis = mesh.axes.rbegin(); axis != mesh.axes.rend(); ++axis) {
    if (std::find(along.begin(), along.end(), axis->name) != along.end()) break;
    stride *= axis->size;
  }
  return stride;
}

void add_flow(std::vector<Flow>& flows, const Mesh& mesh, const Axes& along, bool adds,
              std::int64_t bytes) {
  flows.push_back({.ranks = mesh.size_along(along),
                   .stride = stride_along(mesh, along),
                   .adds = adds,
                   .bytes = static_cast<double>(bytes)});
}

void add_flows(std::vector<Flow>& flows, const Mesh& mesh, const Axes& along,
               const Reduced& bytes) {
  add_flow(flows, mesh, along, true, bytes.added);
  add_flow(flows, mesh, along, false, bytes.copied);
}

/// Activations to the stage behind, and gradients to the stage before; counts of experts both ways.
void add_messages(std::vector<Flow>& flows, const Plan& plan, int rank) {
  const PipelinePlan& pipeline = plan.pipeline;
  std::int64_t messages = 0, counts = 0;
  for (int stage = plan.pipeline_rank(rank); stage < pipeline.stage_count();
       stage += pipeline.shape.ranks) {
    messages += (pipeline.is_last(stage) ? 0 : 1) + (pipeline.sends_gradient(stage) ? 1 : 0);
    counts += (pipeline.is_last(stage) ? 0 : 1) + (stage > 0 ? 1 : 0);
  }
  const std::int64_t bytes = messages * pipeline.message_elements * size(pipeline.message_dtype) +
                             counts * 8 * pipeline.counters;
  add_flow(flows, plan.mesh, {"pipeline"}, false, plan.micro_batches * bytes);
  flows.back().ranks = 2;
}

/// Weights of tied ends once a step, and the gradients of the head after each micro-batch.
void add_tied_messages(std::vector<Flow>& flows, const Plan& plan, int rank) {
  const PipelinePlan& pipeline = plan.pipeline;
  const int place = plan.pipeline_rank(rank);
  std::int64_t weights = 0, gradients = 0;
  for (const TiedPart& part : pipeline.tied) {
    weights += part.shape.numel() * size(pipeline.message_dtype);
    gradients += 4 * part.count(TiedTensors::summands) * part.shape.numel();
  }
  std::int64_t bytes = 0;
  if (place == 0) bytes = weights;
  if (place == pipeline.shape.ranks - 1) bytes = plan.micro_batches * gradients;
  add_flow(flows, plan.mesh, {"pipeline"}, false, bytes);
  flows.back().ranks = 2;
}

/// Bytes that a rank sends in a step for the parameters of one group.
struct Traffic {
  std::int64_t forward = 0, backward = 0;  // gathers
  Reduced in_shards, across_replicas;
  std::int64_t matrices = 0;
};

/// The part of one rank's traffic that is due to one group of the plan.
class GroupTraffic {
 public:
  GroupTraffic(const Plan& plan, const GroupPlan& group, int rank)
      : plan_(plan),
        group_(group),
        placement_(group.placement),
        rank_(rank),
        shard_(plan.mesh.position_along(rank, group.placement.shard)),
        replica_(plan.mesh.position_along(rank, group.placement.replicate)),
        gathered_(size(group.placement.window_dtype)),
        reduced_(size(group.placement.reduce_dtype)) {}

  void add_to(Traffic& traffic) const {
    const GatherCounts& gathers = group_.gathers;
    const int reductions = reduces_once(group_.gradients) ? 1 : plan_.micro_batches;
    const int replica_sums = group_.sums_replicas_once ? 1 : reductions;
    for (int b = 0; b < group_.bucket_count(); ++b) {
      const BucketLayout& bucket = group_.buckets()[b];
      traffic.forward += gathered_ * gathers.forward[b] * gathered(bucket);
      traffic.backward +=
          gathered_ * gathers.backward[b] *
          (placement_.reshard == Reshard::to_groups ? gathered_in_group(bucket) : gathered(bucket));
      traffic.in_shards += times(reduced_ * reductions, reduced_in_shards(bucket));
      traffic.across_replicas += times(reduced_ * replica_sums, reduced_across_replicas(bucket));
    }
    traffic.matrices +=
        matrix_bytes_sent(group_, plan_.mesh.position_along(rank_, group_.matrices.axes));
  }

 private:
  static Reduced times(std::int64_t factor, const Reduced& elements) {
    return {.added = factor * elements.added, .copied = factor * elements.copied};
  }

  std::int64_t gathered(const BucketLayout& bucket) const {
    std::int64_t elements = 0;
    for (const Segment& segment : bucket.segments) {
      const std::int64_t count = segment.range.count;
      elements += segment.owner >= 0
                      ? sent_by_broadcast(count, group_.shards, shard_, segment.owner)
                      : sent_by_slices(count, group_.shards);
    }
    return elements;
  }

  std::int64_t gathered_in_group(const BucketLayout& bucket) const {
    std::int64_t elements = 0;
    for (const Segment& segment : bucket.segments) {
      elements += sent_by_slices(segment.range.count, placement_.reshard_ranks);
    }
    return elements;
  }

  Reduced reduced_in_shards(const BucketLayout& bucket) const {
    Reduced elements;
    if (placement_.layout == Layout::whole) return elements;
    for (int i = 0; i < bucket.trainable_segments; ++i) {
      const Segment& segment = bucket.segments[i];
      const std::int64_t count = segment.range.count;
      elements += segment.owner >= 0 ? sent_by_reduce(count, group_.shards, shard_, segment.owner)
                                     : Reduced{.added = sent_by_slices(count, group_.shards)};
    }
    return elements;
  }

  Reduced reduced_across_replicas(const BucketLayout& bucket) const {
    Reduced elements;
    for (int i = 0; i < bucket.trainable_segments; ++i) {
      const std::int64_t own = bucket.segments[i].range.count / group_.shards;
      elements += sent_by_all_reduce(own, group_.replicas, replica_);
    }
    return elements;
  }

  const Plan& plan_;
  const GroupPlan& group_;
  const Placement& placement_;
  const int rank_;
  const int shard_;
  const int replica_;
  const std::int64_t gathered_;  // bytes per element
  const std::int64_t reduced_;
};

/// Whether the groups' bytes travel between the same ranks.
bool travel_alike(const Placement& a, const Placement& b) {
  return a.shard == b.shard && a.replicate == b.replicate && a.reshard == b.reshard &&
         a.reshard_ranks == b.reshard_ranks;
}

/// The flows of all groups: one for each kind of neighbouring groups that travel alike, as those of a pipeline's
/// stages do. A group of another stage adds nothing.
void add_group_flows(std::vector<Flow>& flows, const Plan& plan, int rank) {
  const int place = plan.pipeline_rank(rank);
  Traffic traffic;
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    const GroupPlan& group = plan.groups[g];
    const Placement& placement = group.placement;
    if (plan.pipeline.rank_of(group.stage) == place) {
      GroupTraffic(plan, group, rank).add_to(traffic);
    }
    if (g + 1 < plan.groups.size() && travel_alike(placement, plan.groups[g + 1].placement)) {
      continue;
    }
    add_flow(flows, plan.mesh, placement.shard, false, traffic.forward);
    add_flow(flows, plan.mesh, placement.shard, false, traffic.backward);
    if (placement.reshard == Reshard::to_groups) flows.back().ranks = placement.reshard_ranks;
    add_flows(flows, plan.mesh, placement.shard, traffic.in_shards);
    add_flows(flows, plan.mesh, placement.replicate, traffic.across_replicas);
    add_flow(flows, plan.mesh, group.matrices.axes, false, traffic.matrices);
    traffic = {};
  }
}

}  // namespace

std::vector<Flow> traffic_of(const Plan& plan, int rank) {
  std::vector<Flow> flows;
  if (!plan.communicates) return flows;
  add_group_flows(flows, plan, rank);
  if (plan.pipeline.has_several()) add_messages(flows, plan, rank);
  if (!plan.pipeline.tied.empty()) add_tied_messages(flows, plan, rank);
  if (plan.context_ranks > 1) {
    const auto sent = [&](std::int64_t elements) {
      return sent_by_slices(elements, plan.context_ranks);
    };
    const Plan::Keys& keys = plan.keys[static_cast<std::size_t>(plan.pipeline_rank(rank))];
    add_flow(flows, plan.mesh, {"context"}, false, plan.key_bytes * sent(keys.gathered));
    add_flow(flows, plan.mesh, {"context"}, true, 4 * sent(keys.reduced));
  }
  if (const int ranks = plan.mesh.has("tensor") ? plan.mesh.size_along({"tensor"}) : 1; ranks > 1) {
    const TensorTraffic& traffic =
        plan.tensor_traffic[static_cast<std::size_t>(plan.pipeline_rank(rank))];
    const auto [added, copied] = traffic.of_micro_batch(ranks, plan.mesh.place(rank, "tensor"),
                                                        plan.sum_parts, plan.token_leaves);
    add_flows(flows, plan.mesh, {"tensor"},
              {.added = plan.micro_batches * added, .copied = plan.micro_batches * copied});
  }
  // The norm: words of i64. The losses, and whether to stop: f32.
  const auto add_all_reduce = [&](std::int64_t elements, std::int64_t size, const Axes& along) {
    const Reduced sent = sent_by_all_reduce(elements, plan.mesh.size_along(along),
                                            plan.mesh.position_along(rank, along));
    add_flows(flows, plan.mesh, along, {.added = size * sent.added, .copied = size * sent.copied});
  };
  add_all_reduce(kNormWords, 8, plan.norm_axes);
  Axes all;
  for (const Axis& axis : plan.mesh.axes) all.push_back(axis.name);
  add_all_reduce(plan.losses() * plan.loss_numbers + 1, 4, all);
  if (plan.counters > 0) {
    // The losses of the routers, and the counters.
    add_all_reduce(plan.losses(), 4, all);
    add_all_reduce(plan.counters, 8, all);
  }
  if (plan.watched_units > 0) {
    // The norms of gradient, update and weights; the entropies of routers.
    add_all_reduce(3 * kNormWords * plan.watched_units, 8, all);
    add_all_reduce(2 * plan.watched_units, 8, all);
  }
  if (plan.maxima > 0) add_all_reduce(plan.maxima, 4, all);
  if (plan.rounded_tensors > 0) add_all_reduce(plan.rounded_tensors, 4, all);
  return flows;
}

}  // namespace tessera
