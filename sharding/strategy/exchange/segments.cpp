#include "sharding/strategy/exchange.h"

namespace tessera {

Tensors segments_of(const BucketLayout& bucket, const Tensor& buffer, bool trained_only) {
  const auto count =
      trained_only ? static_cast<std::size_t>(bucket.trainable_segments) : bucket.segments.size();
  Tensors segments;
  for (std::size_t i = 0; i < count; ++i) {
    const Range& range = bucket.segments[i].range;
    segments.push_back(buffer.slice(range.first, range.end()));
  }
  return segments;
}

}  // namespace tessera
