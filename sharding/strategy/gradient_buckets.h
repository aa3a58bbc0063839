// GradientBuckets: gradients from the first contribution to the sum in the shard.
//
// Backward writes a bucket's gradients in the gradient dtype, through windows into one buffer. When they are
// complete, the buffer is reduced in place on the communication stream, and this rank's part is
// added to the shards' gradients. GradientCase (sharding/plan/plan.h) says which buffer this is,
// when it is reduced and where the sums lie. One slot is reduced while backward writes the other.
#pragma once

#include <optional>

#include "sharding/strategy/gradient_sums.h"
#include "sharding/strategy/partial_sums.h"

namespace tessera {

class GradientBuckets {
 public:
  /// Gives the trained shards their gradients. `sums` must outlive this object.
  GradientBuckets(const GroupResources& resources, GradientSums& sums);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  void start_step();
  /// Opens the windows of a bucket's gradients once its buffer is free. May be called repeatedly.
  void open(int bucket);
  /// The micro-batch's gradients of this bucket are complete.
  void complete(int bucket);
  /// The micro-batch's backward pass is over. Buckets that it did not reach get gradients of zero,
  /// because every rank takes part in every reduction.
  void finish_micro_batch();

 private:
  struct Buffer {
    Tensor data;
    int bucket = -1;                // the bucket with open windows on it
    std::optional<Event> released;  // the reduction has ended: backward may write again
  };
  struct State {
    bool open = false;
    bool completed = false;  // in this micro-batch
    bool has_sum = false;    // the shards hold a sum of this step
  };

  const BucketLayout& bucket(int b) const { return resources_.buckets()[b]; }
  Buffer& buffer_of(int b) { return buffers_[resources_.group.gradient_slots.of_bucket[b]]; }
  bool last_micro_batch() const { return micro_batch_ + 1 == resources_.plan.micro_batches; }
  void make_gradients(int bucket);
  void close(int bucket);
  void reduce(int bucket);
  /// Adds this rank's part of the reduced buffer to the shards' gradients, or to a partial sum.
  void accumulate(int bucket);
  /// Sums the shards' gradients across replicas, by way of the buffer.
  void sum_replicas(int bucket);
  /// How many gradients of a bucket its buffer has.
  int written() const { return resources_.group.gradients_written; }
  /// Runs `exchange` on `written` such gradients in the reduce dtype. The first is the result.
  template <typename ExchangeCall>
  void in_reduce_dtype(int bucket, int written, const ExchangeCall& exchange);
  /// This rank's parts of the trained parameters, in the buffer.
  Tensors own_places(int bucket);

  const GroupResources resources_;
  GradientSums& sums_;
  PartialSums partial_sums_{resources_};
  std::vector<Buffer> buffers_;
  /// Sent in place of the buffer, for another reduce dtype than the gradients'. Reductions run one by one.
  Tensor narrow_;
  std::vector<State> states_;  // per bucket
  int micro_batch_ = 0;
};

}  // namespace tessera
