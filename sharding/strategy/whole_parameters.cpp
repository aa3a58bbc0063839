#include "sharding/strategy/whole_parameters.h"

#include "runtime/context.h"
#include "sharding/comm/stream.h"
#include "sharding/strategy/exchange.h"
#include "sharding/strategy/expert_axis.h"
#include "sharding/strategy/tensor_ranks.h"

namespace tessera {
namespace {

/// The buffer of a bucket, gathered from the ranks that share it.
Tensor gathered(const GroupResources& resources, int b) {
  const BucketLayout& bucket = resources.buckets()[b];
  const Tensor buffer = Tensor::zeros({bucket.elements}, DType::f32);
  communication_stream().wait(context().compute_stream().record());
  Copies copies;
  for (int p = 0; p < bucket.parameter_count(); ++p) {
    copies.push_back({resources.own_place(b, p, buffer), resources.shard_of(b, p).data});
  }
  queue_copies(std::move(copies));
  resources.exchange->gather(bucket, buffer, communication_stream());
  wait_for_communication(communication_stream().record());
  return buffer;
}

}  // namespace

void visit_whole_parameters(const GroupResources& resources, Communicator* experts,
                            Communicator* tensors,
                            const std::function<void(const Parameter&, const Tensor&)>& visit) {
  const bool owns_all = resources.group.placement.layout == Layout::whole;
  const CutSizes& cut = resources.group.cut;
  for (int b = 0; b < resources.group.bucket_count(); ++b) {
    const BucketLayout& bucket = resources.buckets()[b];
    const Tensor buffer = owns_all ? Tensor() : gathered(resources, b);
    for (int p = 0; p < bucket.parameter_count(); ++p) {
      const Parameter& parameter = bucket.parameters[p];
      Tensor held = owns_all ? in_f32(resources.shard_of(b, p).data.reshape(bucket.shapes[p]))
                             : window_of(bucket, p, buffer);
      if (tensors != nullptr && is_divided(parameter, cut)) {
        held = gather_tensor_parts(parameter, cut, held, *tensors);
      }
      visit(parameter, experts == nullptr ? held : gather_experts(parameter, held, *experts));
    }
  }
}

}  // namespace tessera
