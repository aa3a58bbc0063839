#include "sharding/plan/footprint.h"

#include <algorithm>
#include <numeric>

#include "sharding/share.h"

namespace tessera {
namespace {

std::int64_t sum(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

std::int64_t size(DType dtype) {
  return static_cast<std::int64_t>(size_of(dtype));
}

// Elements that one rank of `ranks` sends.

/// all_gather and reduce_scatter: a part to, or for, every other rank.
std::int64_t sent_by_slices(std::int64_t elements, int ranks) {
  return elements / ranks * (ranks - 1);
}

/// The other ranks' shares to them, then the own sum to all.
std::int64_t sent_by_all_reduce(std::int64_t elements, int ranks, int rank) {
  const std::int64_t own = share_of(elements, rank, ranks).count();
  return elements - own + own * (ranks - 1);
}

std::int64_t sent_by_broadcast(std::int64_t elements, int ranks, int rank, int root) {
  return rank == root ? elements * (ranks - 1) : 0;
}

/// The other ranks' shares to them, then the own sum to the root.
std::int64_t sent_by_reduce(std::int64_t elements, int ranks, int rank, int root) {
  return elements - (rank == root ? share_of(elements, rank, ranks).count() : 0);
}

/// What one group of the plan adds to the footprint of one rank.
class GroupFootprint {
 public:
  GroupFootprint(const Plan& plan, const GroupPlan& group, int rank)
      : plan_(plan),
        group_(group),
        placement_(group.placement),
        shard_(plan.mesh.position_along(rank, group.placement.shard)),
        replica_(plan.mesh.position_along(rank, group.placement.replicate)),
        computed_(size(group.placement.compute_dtype)),
        reduced_(size(group.placement.reduce_dtype)),
        owned_(group.partition.owned_elements(shard_)),
        owned_trained_(group.partition.owned_elements(shard_, /*trainable_only=*/true)) {
    for (const BucketLayout& bucket : group.buckets()) {
      elements_.push_back(bucket.elements);
      trained_.push_back(bucket.trainable_elements);
    }
  }

  void add_to(Footprint& footprint, std::int64_t optimizer_bytes) const {
    add_parameters(footprint);
    add_masters(footprint);
    add_gradients(footprint);
    const bool on_host = placement_.offload != Offload::none;
    (on_host ? footprint.host.optimizer : footprint.optimizer) += optimizer_bytes * owned_trained_;
    if (plan_.communicates) add_traffic(footprint);
  }

 private:
  void add_parameters(Footprint& footprint) const {
    if (placement_.parameters == Held::whole) {
      footprint.parameters += computed_ * sum(elements_);
      return;
    }
    footprint.communication += computed_ * sum(group_.gather_slots.sizes(elements_));
    if (in_groups()) footprint.communication += computed_ * kept_elements();
    // With masters on the host, a copy of the own values stays on the device.
    if (placement_.offload == Offload::optimizer) footprint.parameters += computed_ * owned_;
  }

  void add_masters(Footprint& footprint) const {
    switch (group_.masters) {
      case Masters::in_buffer:
        return;
      case Masters::separate:
        footprint.parameters += 4 * owned_;
        return;
      case Masters::on_host:
        footprint.host.parameters += 4 * owned_;
        if (computed_ != 4) footprint.host.parameters += computed_ * owned_;  // rounded copies
    }
  }

  void add_gradients(Footprint& footprint) const {
    const bool sums_on_host = placement_.offload == Offload::all;
    const std::int64_t shards = sums_on_host ? 0 : 4 * owned_trained_;
    switch (group_.gradients) {
      case GradientCase::reduce_in_place:
        footprint.gradients += 4 * sum(trained_);
        break;
      case GradientCase::sum_then_reduce:
      case GradientCase::accumulate_from_buffer:
        footprint.gradients += 4 * sum(trained_) + shards;
        break;
      case GradientCase::accumulate_from_slot:
        footprint.gradients += shards;
        footprint.communication += 4 * sum(group_.gradient_slots.sizes(trained_));
    }
    if (placement_.reduce_dtype != DType::f32) {
      footprint.communication += reduced_ * *std::max_element(trained_.begin(), trained_.end());
    }
    if (placement_.offload != Offload::none) footprint.host.gradients += 4 * owned_trained_;
    if (sums_on_host && plan_.micro_batches > 1 && !reduces_once(group_.gradients)) {
      footprint.communication += 4 * most_owned_of_a_parameter();
    }
  }

  std::int64_t most_owned_of_a_parameter() const {
    std::int64_t most = 0;
    for (int b = 0; b < group_.bucket_count(); ++b) {
      const auto& parameters = group_.buckets()[b].parameters;
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        if (!parameters[p].trainable()) continue;
        most = std::max(most, group_.partition.owned(b, static_cast<int>(p), shard_).count);
      }
    }
    return most;
  }

  void add_traffic(Footprint& footprint) const {
    const GatherCounts gathers = gather_counts();
    const int reductions = reduces_once(group_.gradients) ? 1 : plan_.micro_batches;
    const int replica_sums = group_.sums_replicas_once ? 1 : reductions;
    for (int b = 0; b < group_.bucket_count(); ++b) {
      const BucketLayout& bucket = group_.buckets()[b];
      footprint.bytes_sent += computed_ * gathers.forward[b] * gathered(bucket);
      footprint.bytes_sent += computed_ * gathers.backward[b] *
                              (in_groups() ? gathered_in_group(bucket) : gathered(bucket));
      footprint.bytes_sent += reduced_ * reductions * reduced_in_shards(bucket);
      footprint.bytes_sent += reduced_ * replica_sums * reduced_across_replicas(bucket);
    }
  }

  GatherCounts gather_counts() const {
    if (placement_.parameters == Held::sharded) {
      return gathers_per_step(group_.schedule, group_.gather_slots, plan_.micro_batches);
    }
    const std::vector<int> none(elements_.size(), 0);
    const std::vector<int> once(elements_.size(), placement_.layout == Layout::whole ? 0 : 1);
    return {once, none};
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

  std::int64_t reduced_in_shards(const BucketLayout& bucket) const {
    if (placement_.layout == Layout::whole) return 0;
    std::int64_t elements = 0;
    for (int i = 0; i < bucket.trainable_segments; ++i) {
      const Segment& segment = bucket.segments[i];
      const std::int64_t count = segment.range.count;
      elements += segment.owner >= 0 ? sent_by_reduce(count, group_.shards, shard_, segment.owner)
                                     : sent_by_slices(count, group_.shards);
    }
    return elements;
  }

  std::int64_t reduced_across_replicas(const BucketLayout& bucket) const {
    std::int64_t elements = 0;
    for (int i = 0; i < bucket.trainable_segments; ++i) {
      const std::int64_t own = bucket.segments[i].range.count / group_.shards;
      elements += sent_by_all_reduce(own, group_.replicas, replica_);
    }
    return elements;
  }

  /// What a rank keeps of every bucket among its reshard group.
  std::int64_t kept_elements() const {
    std::int64_t elements = 0;
    for (const BucketLayout& bucket : group_.buckets()) {
      for (const Segment& segment : bucket.segments) {
        elements += segment.range.count / placement_.reshard_ranks;
      }
    }
    return elements;
  }

  bool in_groups() const { return placement_.reshard == Reshard::to_groups; }

  const Plan& plan_;
  const GroupPlan& group_;
  const Placement& placement_;
  const int shard_;
  const int replica_;
  const std::int64_t computed_;  // bytes per element
  const std::int64_t reduced_;
  const std::int64_t owned_;
  const std::int64_t owned_trained_;
  std::vector<std::int64_t> elements_;  // per bucket
  std::vector<std::int64_t> trained_;
};

}  // namespace

Footprint footprint_of(const Plan& plan, int rank, std::int64_t optimizer_bytes) {
  Footprint footprint;
  for (const GroupPlan& group : plan.groups) {
    GroupFootprint(plan, group, rank).add_to(footprint, optimizer_bytes);
  }
  if (!plan.communicates) return footprint;
  // The norm: one f32 and two i64. The loss: one f32.
  const int ranks = plan.mesh.size_along(plan.norm_axes);
  const int position = plan.mesh.position_along(rank, plan.norm_axes);
  footprint.bytes_sent += 4 * sent_by_all_reduce(1, ranks, position);
  footprint.bytes_sent += 8 * sent_by_all_reduce(2, ranks, position);
  footprint.bytes_sent += 4 * sent_by_all_reduce(1, plan.mesh.world_size(), rank);
  return footprint;
}

Footprint footprint_of(const Units& units, const ShardingOptions& options, int world_size, int rank,
                       std::int64_t optimizer_bytes) {
  return footprint_of(make_plan(units, options, {.ranks = world_size}), rank, optimizer_bytes);
}

}  // namespace tessera
