#include "sharding/plan/schedule.h"

#include <algorithm>
#include <limits>

namespace tessera {

Slots Slots::assign(const std::vector<BucketLayout>& buckets, int turns) {
  const auto count = static_cast<int>(buckets.size());
  Slots slots;
  for (int b = 0; b < count; ++b) {
    const bool inner = !buckets[b].has_table || (count <= 2 && !buckets[b].at_both_ends);
    if (turns == 0) {
      slots.of_bucket.push_back(b);
    } else {
      slots.of_bucket.push_back(inner ? b % turns : turns);
    }
  }
  for (const int slot : slots.of_bucket) slots.count = std::max(slots.count, slot + 1);
  return slots;
}

std::vector<std::int64_t> Slots::sizes(const std::vector<std::int64_t>& bucket_elements) const {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(count), 0);
  for (std::size_t b = 0; b < of_bucket.size(); ++b) {
    sizes[of_bucket[b]] = std::max(sizes[of_bucket[b]], bucket_elements[b]);
  }
  return sizes;
}

namespace {

int lowest_trained_unit(const std::vector<BucketLayout>& buckets) {
  for (const BucketLayout& bucket : buckets) {
    if (bucket.trainable_elements > 0) return bucket.units.front();
  }
  return std::numeric_limits<int>::max();
}

}  // namespace

Schedule::Schedule(const std::vector<BucketLayout>& buckets)
    : Schedule(buckets, lowest_trained_unit(buckets)) {}

Schedule::Schedule(const std::vector<BucketLayout>& buckets, int lowest_trained) {
  const auto count = static_cast<int>(buckets.size());
  for (int b = 0; b < count; ++b) forward.push_back(b);
  for (int b = 0; b < count; ++b) {
    if (buckets[b].at_both_ends && count > 1) forward.push_back(b);
  }
  while (backward_end < steps() && buckets[forward[backward_end]].units.back() < lowest_trained) {
    ++backward_end;
  }
}

GatherCounts gathers_per_step(const Schedule& schedule, const Slots& slots,
                              const std::vector<PipelinePass>& passes) {
  GatherCounts counts;
  counts.forward.assign(slots.of_bucket.size(), 0);
  counts.backward = counts.forward;
  std::vector<int> occupants(static_cast<std::size_t>(slots.count), -1);  // new weights: all stale
  const auto use = [&](int bucket, std::vector<int>& gathers) {
    int& occupant = occupants[slots.of_bucket[bucket]];
    if (occupant != bucket) ++gathers[bucket];
    occupant = bucket;
  };
  const int in_forward = schedule.steps() - schedule.deferred;
  for (const PipelinePass& pass : passes) {
    const bool forward = pass.kind == PipelinePass::Kind::forward;
    if (pass.kind == PipelinePass::Kind::weight_gradient) continue;
    for (int step = forward ? 0 : in_forward; step < (forward ? in_forward : schedule.steps());
         ++step) {
      use(schedule.forward[step], counts.forward);
    }
    if (forward) continue;
    for (int step = schedule.steps() - 1; step >= schedule.backward_end; --step) {
      use(schedule.forward[step], counts.backward);
    }
  }
  return counts;
}

}  // namespace tessera
