#include "sharding/plan/footprint.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/check.h"
#include "sharding/plan/traffic.h"

namespace tessera {
namespace {

std::int64_t sum(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

std::int64_t size(DType dtype) {
  return static_cast<std::int64_t>(size_of(dtype));
}

void add_tied_copy(Footprint& footprint, const Plan& plan, int rank) {
  const PipelinePlan& pipeline = plan.pipeline;
  const auto elements = [&](TiedTensors of) { return tied_elements(pipeline.tied, of); };
  const int place = plan.pipeline_rank(rank);
  if (place == 0) {
    footprint.communication += pipeline.tied_slots() * 4 * elements(TiedTensors::summands);
  }
  if (place != pipeline.shape.ranks - 1) return;
  footprint.parameters += elements(TiedTensors::weights) * size(pipeline.message_dtype);
  footprint.gradients += 4 * elements(TiedTensors::gradients);
}

/// The part of one rank's footprint that is due to one group of the plan.
class GroupFootprint {
 public:
  GroupFootprint(const Plan& plan, const GroupPlan& group, int rank)
      : plan_(plan),
        group_(group),
        placement_(group.placement),
        shard_(plan.mesh.position_along(rank, group.placement.shard)),
        computed_(size(group.placement.compute_dtype)),
        window_(size(group.placement.window_dtype)),
        master_(size(group.placement.master_dtype)),
        gradient_(size(group.placement.gradient_dtype)),
        reduced_(size(group.placement.reduce_dtype)),
        owned_(group.partition.owned_elements(shard_)),
        owned_trained_(group.partition.owned_elements(shard_, /*trainable_only=*/true)),
        owned_frozen_(owned_ - owned_trained_) {
    for (const BucketLayout& bucket : group.buckets()) {
      elements_.push_back(bucket.elements);
      written_.push_back(group.gradients_written * bucket.trainable_elements);
    }
  }

  void add_to(Footprint& footprint, const StateBytes& state) const {
    add_parameters(footprint);
    add_masters(footprint);
    add_gradients(footprint);
    const bool on_host = placement_.offload != Offload::none;
    (on_host ? footprint.host.optimizer : footprint.optimizer) += bytes_of(state);
  }

 private:
  void add_parameters(Footprint& footprint) const {
    if (placement_.parameters == Held::whole) {
      footprint.parameters += window_ * sum(elements_);
      return;
    }
    footprint.communication += window_ * sum(group_.gather_slots.sizes(elements_));
    if (placement_.reshard == Reshard::to_groups)
      footprint.communication += window_ * kept_elements();
    // With masters on the host, a copy of the own values stays on the device.
    if (placement_.offload == Offload::optimizer) footprint.parameters += computed_ * owned_;
  }

  void add_masters(Footprint& footprint) const {
    // Frozen parameters that are held whole are in the buffers already.
    const std::int64_t frozen =
        placement_.parameters == Held::whole ? 0 : computed_ * owned_frozen_;
    switch (group_.masters) {
      case Masters::in_buffer:
        return;
      case Masters::separate:
        footprint.parameters += master_ * owned_trained_ + frozen;
        return;
      case Masters::on_host:
        footprint.host.parameters += master_ * owned_trained_ + frozen;
        if (placement_.compute_dtype != placement_.master_dtype) {
          footprint.host.parameters += computed_ * owned_trained_;  // the copy
        }
    }
  }

  void add_gradients(Footprint& footprint) const {
    const bool sums_on_host = placement_.offload == Offload::all;
    const std::int64_t shards = sums_on_host ? 0 : gradient_ * owned_trained_;
    switch (group_.gradients) {
      case GradientCase::reduce_in_place:
        footprint.gradients += gradient_ * sum(written_);
        break;
      case GradientCase::sum_then_reduce:
      case GradientCase::accumulate_from_buffer:
        footprint.gradients += gradient_ * sum(written_) + shards;
        break;
      case GradientCase::accumulate_from_slot:
        footprint.gradients += shards;
        footprint.communication += gradient_ * sum(group_.gradient_slots.sizes(written_));
    }
    if (placement_.reduce_dtype != placement_.gradient_dtype) {
      footprint.communication += reduced_ * *std::max_element(written_.begin(), written_.end());
    }
    const std::int64_t partial_sums = 4 * plan_.partial_sums * owned_trained_;
    (sums_on_host ? footprint.host.gradients : footprint.gradients) += partial_sums;
    if (sums_on_host && partial_sums > 0) {
      footprint.communication += 4 * most_owned_of_a_parameter();
    }
    if (placement_.offload != Offload::none) {
      footprint.host.gradients += gradient_ * owned_trained_;
    }
    if (sums_on_host && plan_.micro_batches > 1 && !reduces_once(group_.gradients)) {
      footprint.communication += 4 * most_owned_of_a_parameter();
    }
  }

  /// visit(parameter, elements that the rank owns) for every trained parameter.
  template <typename Visit>
  void for_each_trained(const Visit& visit) const {
    for (int b = 0; b < group_.bucket_count(); ++b) {
      const auto& parameters = group_.buckets()[b].parameters;
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        if (!parameters[p].trainable()) continue;
        visit(parameters[p], group_.partition.owned(b, static_cast<int>(p), shard_).count);
      }
    }
  }

  std::int64_t bytes_of(const StateBytes& state) const {
    if (state.of_all()) return *state.of_all() * owned_trained_;
    std::int64_t bytes = 0;
    for_each_trained([&](const Parameter& parameter, std::int64_t elements) {
      bytes += state.of(parameter) * elements;
    });
    return bytes;
  }

  std::int64_t most_owned_of_a_parameter() const {
    std::int64_t most = 0;
    for_each_trained(
        [&](const Parameter&, std::int64_t elements) { most = std::max(most, elements); });
    return most;
  }

  /// Elements that a rank keeps of all buckets among its reshard group.
  std::int64_t kept_elements() const {
    std::int64_t elements = 0;
    for (const BucketLayout& bucket : group_.buckets()) {
      for (const Segment& segment : bucket.segments) {
        elements += segment.range.count / placement_.reshard_ranks;
      }
    }
    return elements;
  }

  const Plan& plan_;
  const GroupPlan& group_;
  const Placement& placement_;
  const int shard_;
  const std::int64_t computed_;  // bytes per element
  const std::int64_t window_;
  const std::int64_t master_;
  const std::int64_t gradient_;
  const std::int64_t reduced_;
  const std::int64_t owned_;
  const std::int64_t owned_trained_;
  const std::int64_t owned_frozen_;
  std::vector<std::int64_t> elements_;  // per bucket
  std::vector<std::int64_t> written_;   // by backward: GroupPlan::gradients_written
};

}  // namespace

StateBytes::StateBytes(std::map<std::string, std::int64_t> of_each) : of_each_(std::move(of_each)) {
  const auto same = [&](const auto& one) { return one.second == of_each_.begin()->second; };
  if (of_each_.empty() || !std::all_of(of_each_.begin(), of_each_.end(), same)) return;
  of_all_ = of_each_.begin()->second;
}

std::int64_t StateBytes::of(const Parameter& parameter) const {
  if (of_all_) return *of_all_;
  const auto found = of_each_.find(parameter.name());
  check(found != of_each_.end(), "footprint: the bytes of state of {} are not known",
        parameter.name());
  return found->second;
}

Footprint footprint_of(const Plan& plan, int rank, const StateBytes& state) {
  Footprint footprint;
  const int place = plan.pipeline_rank(rank);
  for (const GroupPlan& group : plan.groups) {
    if (plan.pipeline.rank_of(group.stage) != place) continue;
    GroupFootprint(plan, group, rank).add_to(footprint, state);
  }
  if (!plan.pipeline.tied.empty()) add_tied_copy(footprint, plan, rank);
  for (const Flow& flow : traffic_of(plan, rank)) {
    footprint.bytes_sent += static_cast<std::int64_t>(flow.bytes);
  }
  return footprint;
}

Footprint footprint_of(const Units& units, const ShardingOptions& options, int world_size, int rank,
                       const StateBytes& state) {
  return footprint_of(make_plan(units, options, {.ranks = world_size}), rank, state);
}

}  // namespace tessera
