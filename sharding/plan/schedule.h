// Schedule: the order in which buckets are used, and the fixed memory that each of them uses.
//
// The order of a model's units is known before anything runs, so no first step is recorded. A
// forward pass runs the buckets in order; a bucket at both ends of the model comes again at the
// end. A backward pass runs them in reverse, down to the lowest bucket with a trained parameter.
//
// Gathered buckets and their gradients lie in slots, which are allocated once. Buckets inside the
// model take turns: bucket i uses slot i mod n, so that neighbours never share a slot. The first and
// the last bucket hold the large tables and share a slot of their own. A slot keeps a bucket until
// another bucket needs the slot. So the last buckets of forward are still there for backward.
#pragma once

#include <vector>

#include "sharding/plan/partition.h"
#include "sharding/plan/pipeline_schedule.h"

namespace tessera {

/// The slot of each bucket.
struct Slots {
  std::vector<int> of_bucket;
  int count = 0;

  /// Inner buckets share `turns` slots; with 0 every bucket has a slot of its own.
  static Slots assign(const std::vector<BucketLayout>& buckets, int turns);
  /// The size of each slot: that of its largest bucket.
  std::vector<std::int64_t> sizes(const std::vector<std::int64_t>& bucket_elements) const;
};

struct Schedule {
  /// Buckets in forward order.
  std::vector<int> forward;
  /// Backward runs forward[size - 1] down to forward[backward_end].
  int backward_end = 0;
  /// The last buckets of `forward` that run when backward begins: the head of a pipeline.
  int deferred = 0;

  /// Backward goes down to the lowest of these buckets that has a trained parameter.
  explicit Schedule(const std::vector<BucketLayout>& buckets);
  /// Backward goes down to the unit `lowest_trained`, which may have its trained parameters in
  /// buckets of another placement.
  Schedule(const std::vector<BucketLayout>& buckets, int lowest_trained);
  int steps() const { return static_cast<int>(forward.size()); }
};

/// How often buckets are gathered during one training step.
struct GatherCounts {
  std::vector<int> forward;   // per bucket
  std::vector<int> backward;  // per bucket
};
/// `passes`: those of a step. A pass for the gradients of weights alone gathers nothing.
GatherCounts gathers_per_step(const Schedule& schedule, const Slots& slots,
                              const std::vector<PipelinePass>& passes);

}  // namespace tessera
