#include "sharding/strategy/offload/host_gradients.h"

#include <algorithm>

#include "kernels/add/op.h"
#include "runtime/category.h"
#include "runtime/context.h"
#include "runtime/stream_log.h"
#include "sharding/comm/stream.h"

namespace tessera {

HostGradients::HostGradients(const GroupResources& resources)
    : resources_(resources), on_device_(resources.shards.size()) {
  const bool adds = resources.plan.micro_batches > 1 && !reduces_once(resources.group.gradients);
  if (sums_on_device() || !adds) return;
  std::int64_t largest = 0;
  for (int b = 0; b < resources.group.bucket_count(); ++b) {
    for (int p = 0; p < resources.buckets()[b].trained_count; ++p) {
      largest = std::max(largest, resources.owned(b, p).count);
    }
  }
  const CategoryScope category(Category::communication);
  scratch_ = Tensor::empty({largest}, DType::f32);
}

void HostGradients::make(int b, int p, const Tensor& window) {
  const CategoryScope category(Category::gradients);
  Shard& shard = resources_.shard_of(b, p);
  const Shape& shape = shard.data.shape();
  shard.gradient = Tensor::empty_on_host(shape, resources_.gradient_dtype());
  shard.gradient.zero();
  if (!sums_on_device()) return;
  on_device_[static_cast<std::size_t>(resources_.index_of(b, p))] =
      window.defined() ? window.reshape(shape) : Tensor::zeros(shape, resources_.gradient_dtype());
}

void HostGradients::add(int b, const Tensors& reduced, bool first) {
  if (sums_on_device()) return queue_accumulation(of(b), reduced, first);
  const Tensors sums = on_host(b);
  communication_stream().enqueue([sums, reduced, first, scratch = scratch_] {
    for (std::size_t i = 0; i < sums.size(); ++i) {
      if (sums[i].numel() == 0) continue;
      const Tensor value = reduced[i].reshape(sums[i].shape());
      if (first) {
        sums[i].copy_from(value);
        continue;
      }
      const Tensor sum = scratch.slice(0, value.numel()).reshape(value.shape());
      sum.copy_from(sums[i]);
      log_memory(3.0 * static_cast<double>(sum.bytes()));
      tessera::add(sum, sum, value);
      sums[i].copy_from(sum);
    }
  });
}

void HostGradients::complete(int b) {
  if (!sums_on_device()) return;
  communication_stream().wait(context().compute_stream().record());  // the sums of strategy single
  queue_accumulation(on_host(b), of(b), /*first=*/true);
}

Tensors HostGradients::of(int b) const {
  if (!sums_on_device()) return on_host(b);
  Tensors sums;
  for (int p = 0; p < resources_.buckets()[b].trained_count; ++p) {
    sums.push_back(on_device_[static_cast<std::size_t>(resources_.index_of(b, p))]);
  }
  return sums;
}

Tensors HostGradients::on_host(int b) const {
  Tensors gradients;
  for (int p = 0; p < resources_.buckets()[b].trained_count; ++p) {
    gradients.push_back(resources_.shard_of(b, p).gradient);
  }
  return gradients;
}

}  // namespace tessera
