// ParameterGroup: one group of the plan on one rank, with the hooks around its buckets.
//
// The five calls are the same for every strategy. Three parts tell strategies apart: where
// parameters are kept (parameter_store.h), where gradients go (gradient_buckets.h), and the
// collectives (exchange.h).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "sharding/strategy/gradient_buckets.h"
#include "sharding/strategy/own_values.h"
#include "sharding/strategy/parameter_store.h"
#include "sharding/strategy/whole_parameters.h"

namespace tessera {

class ParameterGroup {
 public:
  /// Gives the group's shards, one per parameter, their memory and their initial values. The plan,
  /// the shards and the communicators must outlive the group.
  ParameterGroup(const Plan& plan, const GroupPlan& group, int rank, std::span<Shard> shards,
                 MeshCommunicators& communicators, std::uint64_t seed);

  const GroupPlan& plan() const { return group_; }

  /// The first unit of the bucket is about to run. `trains`: a backward pass will follow.
  void before_forward(int bucket, bool trains);
  /// Gathers the next buckets, after the forward pass of a bucket has begun.
  void prefetch_forward();
  /// The last unit of the bucket has run.
  void after_forward(int bucket, bool trains);
  /// A unit of the bucket is about to go backward.
  void before_backward(int bucket);
  /// All units of the bucket have gone backward; its first unit comes last.
  void after_backward(int bucket);
  /// The micro-batch's backward pass is over.
  void finish_micro_batch();

  void start_step();
  /// The compute stream or the host has written all masters.
  void masters_changed(Writes writes);
  /// The update of a bucket, with its copies, has been queued on the update stream.
  void update_queued(int bucket);
  /// Gathers the first buckets of the next forward pass.
  void prefetch_first();

  /// The group's reduced gradients on this rank; optionally of parameters that tensor ranks share out.
  Tensors gradients(bool divided_only = false) const;
  /// See visit_whole_parameters.
  void visit_whole(const ShardedParameters::Visit& visit,
                   const ShardedParameters::Includes& includes) {
    visit_whole_parameters(resources_, experts_, tensors_, visit, includes);
  }

 private:
  void make_shards(std::uint64_t seed);
  /// The position in the forward pass at which `bucket` runs next.
  int next_position(int bucket) const;
  /// Gathers the buckets that follow `position` in the direction of the pass, as slots allow.
  void prefetch_after(int position, Direction direction);

  const GroupPlan& group_;
  std::unique_ptr<Exchange> exchange_;          // null for strategy single
  std::unique_ptr<Exchange> reshard_exchange_;  // null unless the plan reshards to groups
  Communicator* const experts_;                 // null unless ranks share out experts
  Communicator* const tensors_;                 // null unless ranks share out channels
  const GroupResources resources_;
  std::unique_ptr<OwnValues> own_values_;
  std::unique_ptr<ParameterStore> parameters_;
  std::unique_ptr<GradientSums> sums_;
  std::unique_ptr<GradientBuckets> gradients_;
  /// Index into schedule.forward of the bucket that ran last.
  int position_ = -1;
  std::vector<bool> in_backward_;  // per bucket
};

}  // namespace tessera
