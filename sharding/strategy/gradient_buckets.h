// GradientBuckets: where gradients are from the first contribution to the reduced shard.
//
// Backward writes a bucket's gradients, f32, into windows onto one buffer; when they are complete
// the buffer is reduced in place on the communication stream, and this rank's part lands in the
// shards' gradients. The buffer is
//
//   one per bucket   where every rank keeps whole gradients: DDP, ZeRO-1; or anything that sums
//                    micro-batches before it reduces
//   a slot           otherwise. Two slots are shared by turns: while one is being reduced, backward
//                    writes to the other.
//
// Where a bucket has a buffer of its own and is reduced once a step, the shards' gradients are
// simply windows into it. Where they are offloaded, sums of micro-batches are formed on the GPU all
// the same, and copied to the host as soon as they are complete (`all` keeps no sums there and
// fetches them back to add).
#pragma once

#include "sharding/strategy/offload.h"

namespace tessera {

class GradientBuckets {
 public:
  /// Gives the trained shards their gradients.
  GradientBuckets(const BucketResources& resources, bool whole_gradients);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  void start_step();
  /// Opens the windows of a bucket's gradients, once its buffer is free. May be called repeatedly.
  void open(int bucket);
  /// The micro-batch's gradients of this bucket are complete.
  void complete(int bucket);
  /// The micro-batch's backward pass is over: completes the buckets that it did not reach, with
  /// gradients of zero, and after the step's last micro-batch waits for every reduction.
  void finish_micro_batch();

  /// The step's reduced gradients, on the device if they are there.
  std::vector<Tensor> reduced() const;

 private:
  struct Buffer {
    Tensor data;
    int bucket = -1;  // whose windows are open on it
    Event released;   // the reduction has ended: may be written again
  };
  struct State {
    bool open = false;
    bool completed = false;  // in this micro-batch
    bool landed = false;     // in this step: the shards' gradients hold something
  };

  const std::vector<BucketLayout>& buckets() const { return resources_.partition.buckets(); }
  Buffer& buffer_of(int bucket) { return buffers_[assignment_.of_bucket[bucket]]; }
  bool last_micro_batch() const { return micro_batch_ + 1 == resources_.options.micro_batches; }
  void make_gradients(int bucket);
  void make_scratch();
  void close(int bucket);
  void reduce(int bucket);
  void land(int bucket);
  void land_on_host(const Tensor& gradient, const Tensor& reduced, bool first);
  void copy_to_host(int bucket);
  const Tensor& sum_of(int bucket, int parameter) const {
    return sums_[resources_.first_shard(bucket) + parameter - resources_.shards.data()];
  }

  BucketResources resources_;
  /// Each bucket has a buffer of its own.
  bool own_buffers_;
  /// Micro-batches are summed in the buffers, and reduced once.
  bool sum_first_;
  /// The shards' gradients are windows into the buffers.
  bool in_place_;
  Slots assignment_;
  std::vector<Buffer> buffers_;
  /// For a 16-bit reduce_dtype: what is sent. One will do, as reductions run one after another.
  Tensor narrow_;
  std::vector<State> states_;
  /// Per shard, the sum of reduced gradients on the device: the shard's gradient itself if nothing
  /// is offloaded, no tensor if everything is.
  std::vector<Tensor> sums_;
  /// Offload `all`: for adding to a gradient on the host.
  Tensor scratch_;
  int micro_batch_ = 0;
};

}  // namespace tessera
