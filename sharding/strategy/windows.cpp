#include "sharding/strategy/windows.h"

#include "kernels/cast/op.h"
#include "runtime/context.h"
#include "runtime/stream_log.h"
#include "sharding/comm/stream.h"

namespace tessera {
namespace {

/// Copies pairs of one dtype, and rounds to 8 bits, one by one; casts all others in one kernel.
void run_copies(const Copies& copies) {
  Tensors ys, xs;
  for (const auto& [to, from, parameter] : copies) {
    const bool casts = to.dtype() != from.dtype();
    // A copy from host memory logs itself.
    if (casts || to.device() == from.device()) {
      log_memory(static_cast<double>(to.bytes()) + static_cast<double>(from.bytes()));
    }
    if (!casts) {
      to.copy_from(from);
    } else if (is_fp8(to.dtype())) {
      parameter.round(to, from);
    } else {
      ys.push_back(to);
      xs.push_back(on_device(from));
    }
  }
  if (!ys.empty()) cast_all(ys, xs);
}

std::size_t count_of(const BucketLayout& bucket, Segments which) {
  return which == Segments::all ? bucket.segments.size()
                                : static_cast<std::size_t>(bucket.trainable_segments);
}

}  // namespace

Tensor window_of(const Tensor& buffer, const Range& range) {
  return buffer.slice(range.first, range.end());
}

Tensor window_of(const BucketLayout& bucket, int parameter, const Tensor& buffer) {
  return window_of(buffer, bucket.place_of(parameter)).reshape(bucket.shapes[parameter]);
}

Tensors windows_of(const BucketLayout& bucket, int parameter, const Tensor& buffers, int copies) {
  Tensors windows;
  const std::int64_t each = bucket.trainable_elements;
  for (int i = 0; i < copies; ++i) {
    windows.push_back(window_of(bucket, parameter, window_of(buffers, Range{i * each, each})));
  }
  return windows;
}

Tensor on_device(const Tensor& x) {
  if (x.device() == context().device()) return x;
  const Tensor y = Tensor::empty(x.shape(), x.dtype());
  y.copy_from(x);
  return y;
}

Tensor in_f32(const Tensor& x) {
  if (x.dtype() == DType::f32) return x;
  const Tensor y = Tensor::empty(x.shape(), DType::f32);
  cast(y, on_device(x));
  return y;
}

Tensors segments_of(const BucketLayout& bucket, const Tensor& buffer, Segments which) {
  Tensors segments;
  for (std::size_t i = 0; i < count_of(bucket, which); ++i) {
    segments.push_back(window_of(buffer, bucket.segments[i].range));
  }
  return segments;
}

Tensors parts_of(const BucketLayout& bucket, const Tensor& buffer, int shards, int shard,
                 Segments which) {
  Tensors parts;
  for (std::size_t i = 0; i < count_of(bucket, which); ++i) {
    parts.push_back(window_of(buffer, part_of(bucket.segments[i], shards, shard)));
  }
  return parts;
}

void queue_copies(Copies copies) {
  if (copies.empty()) return;
  communication_stream().enqueue([copies = std::move(copies)] { run_copies(copies); });
}

}  // namespace tessera
