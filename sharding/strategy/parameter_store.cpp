#include "sharding/strategy/parameter_store.h"

#include "kernels/cast/op.h"

namespace tessera {

Shard* BucketResources::first_shard(int bucket) const {
  std::size_t index = 0;
  for (int b = 0; b < bucket; ++b) index += partition.buckets()[b].parameters.size();
  return shards.data() + index;
}

Tensor window_of(const BucketLayout& bucket, int parameter, const Tensor& buffer) {
  const Parameter& whole = bucket.parameters[parameter];
  return place_of(bucket, parameter, {0, whole.numel()}, buffer).reshape(whole.shape());
}

Tensor place_of(const BucketLayout& bucket, int parameter, const Range& range,
                const Tensor& buffer) {
  const std::int64_t offset = bucket.offsets[parameter];
  return buffer.slice(offset + range.first, offset + range.end());
}

void copy_or_cast(Out to, const Tensor& from) {
  if (to.dtype() == from.dtype()) return to.copy_from(from);
  cast(to, from.reshape(to.shape()));
}

}  // namespace tessera
