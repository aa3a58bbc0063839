#include "sharding/strategy/whole_parameters.h"

#include "kernels/nf4/op.h"
#include "runtime/context.h"
#include "sharding/comm/stream.h"
#include "sharding/strategy/exchange.h"
#include "sharding/strategy/expert_axis.h"
#include "sharding/strategy/tensor_ranks.h"

namespace tessera {
namespace {

/// The buffer of a bucket, gathered from the ranks that share it: f32, or packed.
Tensor gathered(const GroupResources& resources, int b) {
  const BucketLayout& bucket = resources.buckets()[b];
  const bool packed = resources.group.placement.compute_dtype == DType::u8;
  const Tensor buffer = Tensor::zeros({bucket.elements}, packed ? DType::u8 : DType::f32);
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

/// The values of a held part in f32, from its memory.
Tensor values_of(const Parameter& parameter, const Tensor& held) {
  if (!parameter.packed()) return in_f32(held);
  const Tensor values = Tensor::empty(held.shape().with(-1, parameter.shape()[-1]), DType::f32);
  nf4_unpack(values, on_device(held));
  return values;
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
