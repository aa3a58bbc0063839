// Windows into a bucket's buffer, and copies between them.
//
// The plan says in elements where everything lies in a buffer (sharding/plan/partition.h). These
// functions turn such ranges into tensors that share the buffer's memory.
#pragma once

#include <vector>

#include "runtime/tensor.h"
#include "sharding/comm/call.h"
#include "sharding/plan/partition.h"

namespace tessera {

/// The elements `range` of the buffer.
Tensor window_of(const Tensor& buffer, const Range& range);
/// A whole parameter, in its shape.
Tensor window_of(const BucketLayout& bucket, int parameter, const Tensor& buffer);

/// The same in each of `copies` buffers of the trained parameters, one after another.
Tensors windows_of(const BucketLayout& bucket, int parameter, const Tensor& buffers, int copies);

/// x itself, or a copy of it on the context's device: kernels do not read a GPU's host memory.
Tensor on_device(const Tensor& x);
/// x itself if it is f32, or a copy.
Tensor in_f32(const Tensor& x);

enum class Segments { all, trained };

/// The segments of a bucket.
Tensors segments_of(const BucketLayout& bucket, const Tensor& buffer, Segments which);
/// The equal part of each segment that `shard` of `shards` owns.
Tensors parts_of(const BucketLayout& bucket, const Tensor& buffer, int shards, int shard,
                 Segments which);

struct Copy {
  Tensor to;
  Tensor from;
  /// That of the values, if `to` may have numbers of 8 bits, and `from` others.
  Parameter parameter = {};
};
using Copies = std::vector<Copy>;

/// Queues the copies on the communication stream, converting where the dtypes differ: a parameter rounds its values
/// to 8 bits. The queue holds the tensors until the copies are done.
void queue_copies(Copies copies);

}  // namespace tessera
