#include "sharding/strategy/parameter_group.h"

#include <algorithm>
#include <tuple>

#include "runtime/check.h"
#include "runtime/context.h"
#include "sharding/comm/stream.h"

namespace tessera {

ParameterGroup::ParameterGroup(const Plan& plan, const GroupPlan& group, int rank,
                               std::span<Shard> shards, MeshCommunicators& communicators,
                               std::uint64_t seed)
    : group_(group),
      exchange_(plan.communicates ? make_exchange(group, communicators) : nullptr),
      reshard_exchange_(make_reshard_exchange(group, communicators)),
      experts_(group.expert_ranks() > 1 ? &communicators.along(group.placement.experts) : nullptr),
      tensors_(group.cut.tensors > 1 ? &communicators.along({"tensor"}) : nullptr),
      resources_{.plan = plan,
                 .group = group,
                 .shard = plan.mesh.position_along(rank, group.placement.shard),
                 .shards = shards,
                 .exchange = exchange_.get(),
                 .reshard_exchange = reshard_exchange_.get()},
      own_values_(make_own_values(resources_)),
      parameters_(make_parameter_store(resources_, *own_values_)),
      sums_(make_gradient_sums(resources_)),
      in_backward_(group.buckets().size(), false) {
  make_shards(seed);
  gradients_ = std::make_unique<GradientBuckets>(resources_, *sums_);
}

void ParameterGroup::make_shards(std::uint64_t seed) {
  for (int b = 0; b < group_.bucket_count(); ++b) {
    for (int p = 0; p < group_.buckets()[b].parameter_count(); ++p) {
      Shard& shard = resources_.shard_of(b, p);
      const Range owned = resources_.owned(b, p);
      shard.part =
          held_part(shard.parameter, group_.cut, experts_ == nullptr ? 0 : experts_->rank(),
                    tensors_ == nullptr ? 0 : tensors_->rank());
      shard.first = owned.first;
      std::tie(shard.data, shard.copy) = parameters_->make_own(b, p);
      if (owned.count == shard.part.shape.numel()) {
        shard.data = shard.data.reshape(shard.part.shape);
      }
      const std::int64_t count = shard.count();
      if (count < shard.data.numel()) shard.data.zero();
      shard.parameter.initialize(shard.data.reshape({shard.data.numel()}).slice(0, count),
                                 shard.elements(), seed);
    }
  }
}

void ParameterGroup::before_forward(int bucket, bool trains) {
  position_ = next_position(bucket);
  parameters_->open(bucket, Direction::forward);
  // The loss of a language model computes the gradients of the head in forward.
  const bool last =
      position_ + 1 == group_.schedule.steps() && resources_.plan.pipeline.is_last(group_.stage);
  if (last && trains) gradients_->open(bucket);
}

void ParameterGroup::prefetch_forward() {
  if (resources_.plan.prefetch_in_forward) prefetch_after(position_, Direction::forward);
}

void ParameterGroup::prefetch_first() {
  const Plan& plan = resources_.plan;
  if (!plan.prefetch_in_forward || plan.live_gathers == 1 || group_.gather_slots.count == 0) return;
  std::vector<bool> taken(static_cast<std::size_t>(group_.gather_slots.count), false);
  const int buckets = std::min(plan.live_gathers, group_.bucket_count());
  for (int b = 0; b < buckets; ++b) {
    const int slot = group_.gather_slots.of_bucket[b];
    if (taken[slot]) return;
    taken[slot] = true;
    parameters_->prefetch(b, Direction::forward);
  }
}

void ParameterGroup::after_forward(int bucket, bool trains) {
  parameters_->close(bucket, /*again_in_backward=*/trains);
}

void ParameterGroup::before_backward(int bucket) {
  if (in_backward_[bucket]) return;
  in_backward_[bucket] = true;
  parameters_->open(bucket, Direction::backward);
  gradients_->open(bucket);
  if (!resources_.plan.prefetch_in_backward) return;
  const std::vector<int>& order = group_.schedule.forward;
  const auto last_use = std::find(order.rbegin(), order.rend(), bucket);
  prefetch_after(static_cast<int>(order.rend() - last_use) - 1, Direction::backward);
}

void ParameterGroup::after_backward(int bucket) {
  in_backward_[bucket] = false;
  // Reshard before the reduction is queued, so that the next gather finds the slot free.
  parameters_->close(bucket, /*again_in_backward=*/false);
  // Gradients with a pass of their own are complete when the micro-batch is finished.
  if (!resources_.plan.pipeline.splits_backward()) gradients_->complete(bucket);
}

void ParameterGroup::finish_micro_batch() {
  // A bucket is still open if its first units have nothing to train: no hook ended it.
  for (int b = group_.bucket_count() - 1; b >= 0; --b) {
    if (in_backward_[b]) after_backward(b);
  }
  gradients_->finish_micro_batch();
}

void ParameterGroup::start_step() {
  std::fill(in_backward_.begin(), in_backward_.end(), false);
  gradients_->start_step();
}

void ParameterGroup::masters_changed(Writes writes) {
  own_values_->masters_changed(writes);
  for (int b = 0; b < group_.bucket_count(); ++b) {
    parameters_->masters_changed(b, writes, context().compute_stream());
  }
}

void ParameterGroup::update_queued(int bucket) {
  parameters_->masters_changed(bucket, Writes::masters_and_copies, update_stream());
}

int ParameterGroup::next_position(int bucket) const {
  const Schedule& schedule = group_.schedule;
  for (int i = 1; i <= schedule.steps(); ++i) {
    const int position = (position_ + i) % schedule.steps();
    if (schedule.forward[position] == bucket) return position;
  }
  fail("bucket '{}' is not part of the forward pass", group_.buckets()[bucket].name);
}

void ParameterGroup::prefetch_after(int position, Direction direction) {
  const Schedule& schedule = group_.schedule;
  const int first = direction == Direction::forward ? 0 : schedule.backward_end;
  const int sign = direction == Direction::forward ? 1 : -1;
  for (int ahead = 1; ahead < resources_.plan.live_gathers; ++ahead) {
    const int next = position + sign * ahead;
    if (next < first || next >= schedule.steps()) return;
    parameters_->prefetch(schedule.forward[next], direction);
  }
}

Tensors ParameterGroup::gradients(bool divided_only) const {
  Tensors all;
  for (int b = 0; b < group_.bucket_count(); ++b) {
    const Tensors sums = sums_->of(b);
    for (std::size_t p = 0; p < sums.size(); ++p) {
      const Parameter& parameter = group_.buckets()[b].parameters[p];
      if (!divided_only || is_divided(parameter, group_.cut)) all.push_back(sums[p]);
    }
  }
  return all;
}

}  // namespace tessera
