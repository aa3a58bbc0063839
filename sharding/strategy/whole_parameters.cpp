#include "sharding/strategy/whole_parameters.h"

#include <algorithm>

#include "kernels/nf4/op.h"
#include "runtime/context.h"
#include "sharding/comm/stream.h"
#include "sharding/strategy/exchange.h"
#include "sharding/strategy/expert_axis.h"
#include "sharding/strategy/tensor_ranks.h"

namespace tessera {
namespace {

/// A bucket with the segments of included parameters alone. Its buffer ends with the last of them.
BucketLayout narrowed(BucketLayout bucket, const ShardedParameters::Includes& includes) {
  std::erase_if(bucket.segments, [&](const Segment& segment) {
    for (int p = 0; p < bucket.parameter_count(); ++p) {
      const Range place = bucket.place_of(p);
      const bool overlaps = place.first < segment.range.end() && segment.range.first < place.end();
      if (overlaps && includes(bucket.parameters[p])) return false;
    }
    return true;
  });
  bucket.elements = bucket.segments.empty() ? 0 : bucket.segments.back().range.end();
  return bucket;
}

/// The buffer of bucket b's included parameters, gathered from the ranks that share it: f32, or packed.
Tensor gathered(const GroupResources& resources, int b,
                const ShardedParameters::Includes& includes) {
  const BucketLayout bucket = narrowed(resources.buckets()[b], includes);
  const bool packed = resources.group.placement.compute_dtype == DType::u8;
  const Tensor buffer = Tensor::zeros({bucket.elements}, packed ? DType::u8 : DType::f32);
  communication_stream().wait(context().compute_stream().record());
  Copies copies;
  for (int p = 0; p < bucket.parameter_count(); ++p) {
    if (!includes(bucket.parameters[p])) continue;
    copies.push_back({resources.own_place(b, p, buffer), resources.shard_of(b, p).data});
  }
  queue_copies(std::move(copies));
  resources.exchange->gather(bucket, buffer, communication_stream());
  wait_for_communication(communication_stream().record());
  return buffer;
}

/// The values of a held part in f32, from its memory.
Tensor values_of(const Parameter& parameter, const Tensor& held) {
  if (!parameter.packed()) return in_f32(held);
  const Tensor values = Tensor::empty(held.shape().with(-1, parameter.shape()[-1]), DType::f32);
  nf4_unpack(values, on_device(held));
  return values;
}

}  // namespace

void visit_whole_parameters(const GroupResources& resources, Communicator* experts,
                            Communicator* tensors, const ShardedParameters::Visit& visit,
                            const ShardedParameters::Includes& includes) {
  const bool owns_all = resources.group.placement.layout == Layout::whole;
  const CutSizes& cut = resources.group.cut;
  for (int b = 0; b < resources.group.bucket_count(); ++b) {
    const BucketLayout& bucket = resources.buckets()[b];
    if (std::none_of(bucket.parameters.begin(), bucket.parameters.end(), includes)) continue;
    const Tensor buffer = owns_all ? Tensor() : gathered(resources, b, includes);
    for (int p = 0; p < bucket.parameter_count(); ++p) {
      const Parameter& parameter = bucket.parameters[p];
      if (!includes(parameter)) continue;
      Tensor held =
          values_of(parameter, owns_all ? resources.shard_of(b, p).data.reshape(bucket.shapes[p])
                                        : window_of(bucket, p, buffer));
      if (tensors != nullptr && is_divided(parameter, cut)) {
        held = gather_tensor_parts(parameter, cut, held, *tensors);
      }
      visit(parameter, experts == nullptr ? held : gather_experts(parameter, held, *experts));
    }
  }
}

}  // namespace tessera
