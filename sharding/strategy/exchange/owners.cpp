#include "sharding/strategy/exchange/owners.h"

#include <map>

#include "sharding/strategy/windows.h"

namespace tessera {
namespace {

std::map<int, Tensors> by_owner(const BucketLayout& bucket, const Tensor& buffer, Segments which) {
  const Tensors segments = segments_of(bucket, buffer, which);
  std::map<int, Tensors> grouped;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    grouped[bucket.segments[i].owner].push_back(segments[i]);
  }
  return grouped;
}

}  // namespace

void OwnerExchange::gather(const BucketLayout& bucket, const Tensor& buffer, const Stream& stream) {
  for (const auto& [owner, tensors] : by_owner(bucket, buffer, Segments::all)) {
    ranks_.broadcast(tensors, owner, stream, bucket.name);
  }
}

void OwnerExchange::reduce(const BucketLayout& bucket, const Tensor& buffer, const Stream& stream) {
  for (const auto& [owner, tensors] : by_owner(bucket, buffer, Segments::trained)) {
    ranks_.reduce(tensors, owner, stream, bucket.name);
  }
}

}  // namespace tessera
