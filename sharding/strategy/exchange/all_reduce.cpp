#include "sharding/strategy/exchange/all_reduce.h"

#include "sharding/strategy/windows.h"

namespace tessera {

void AllReduceExchange::sum_replicas(const BucketLayout& bucket, const Tensor& buffer,
                                     const Stream& stream) {
  ranks_.all_reduce(segments_of(bucket, buffer, Segments::trained), stream, bucket.name);
}

}  // namespace tessera
