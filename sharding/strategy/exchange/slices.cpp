#include "sharding/strategy/exchange/slices.h"

#include "sharding/strategy/windows.h"

namespace tessera {

void SliceExchange::gather(const BucketLayout& bucket, const Tensor& buffer, const Stream& stream) {
  shards_.all_gather(segments_of(bucket, buffer, Segments::all), stream, bucket.name);
}

void SliceExchange::reduce(const BucketLayout& bucket, const Tensor& buffer, const Stream& stream) {
  shards_.reduce_scatter(own_parts(bucket, buffer), segments_of(bucket, buffer, Segments::trained),
                         stream, bucket.name);
}

void SliceExchange::sum_replicas(const BucketLayout& bucket, const Tensor& buffer,
                                 const Stream& stream) {
  if (replicas_ == nullptr) return;
  replicas_->all_reduce(own_parts(bucket, buffer), stream, bucket.name);
}

Tensors SliceExchange::own_parts(const BucketLayout& bucket, const Tensor& buffer) const {
  return parts_of(bucket, buffer, shards_.size(), shards_.rank(), Segments::trained);
}

}  // namespace tessera
