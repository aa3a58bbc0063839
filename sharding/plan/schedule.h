// Schedule: the order in which buckets are used, and the fixed memory each of them uses.
//
// The order of a model's units is known before anything runs, so nothing has to be recorded: a
// forward pass runs the buckets in order (one at both ends of the model comes again at the end), a
// backward pass runs them in reverse as far down as there is something to train.
//
// Whole buckets and their gradients live in slots, allocated once. A slot belongs to fixed buckets:
// those inside the model take turns (bucket i uses slot i mod n, so that neighbours never share
// one), the first and the last, which hold the large embedding tables, share one of their own. A
// slot keeps a bucket until another one needs it, so what a pass used last is there when the way
// back begins.
#pragma once

#include <vector>

#include "sharding/plan/partition.h"

namespace tessera {

/// Which slot each bucket uses, and how many there are.
struct Slots {
  std::vector<int> of_bucket;
  int count = 0;

  /// Slots that inner buckets share by turns: `turns`; 0: every bucket has a slot of its own.
  static Slots assign(const std::vector<BucketLayout>& buckets, int turns);
  /// The size of each slot: that of its largest bucket.
  std::vector<std::int64_t> sizes(const std::vector<std::int64_t>& bucket_elements) const;
};

struct Schedule {
  /// Buckets in forward order.
  std::vector<int> forward;
  /// Backward runs forward[size - 1] down to forward[backward_end].
  int backward_end = 0;

  explicit Schedule(const std::vector<BucketLayout>& buckets);
  int steps() const { return static_cast<int>(forward.size()); }
};

/// How often buckets are gathered during one training step.
struct GatherCounts {
  std::vector<int> forward;   // per bucket
  std::vector<int> backward;  // per bucket
};
GatherCounts gathers_per_step(const Schedule& schedule, const Slots& slots, int micro_batches);

}  // namespace tessera
