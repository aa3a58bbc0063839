#include "sharding/strategy/offload.h"

#include "kernels/cast/op.h"
#include "runtime/category.h"

namespace tessera {

ShardingOptions options_on(const Device& device, ShardingOptions options) {
  if (device.is_cpu()) options.offload = Offload::none;
  return options;
}

Tensor make_separate_master(const ShardingOptions& options, std::int64_t elements) {
  const CategoryScope category(Category::parameters);
  return offloads(options) ? Tensor::empty_on_host({elements}, DType::f32)
                           : Tensor::empty({elements}, DType::f32);
}

void HostValues::refresh() {
  communication_stream().synchronize();
  const DType dtype = resources_.options.compute_dtype;
  if (dtype == DType::f32) return;
  const CategoryScope category(Category::parameters);
  for (std::size_t i = 0; i < resources_.shards.size(); ++i) {
    const Tensor& master = resources_.shards[i].data;
    if (i == rounded_.size()) rounded_.push_back(Tensor::empty_on_host(master.shape(), dtype));
    cast(rounded_[i], master);
  }
}

const Tensor& HostValues::of(int bucket, int parameter) const {
  const Shard* shard = resources_.first_shard(bucket) + parameter;
  return rounded_.empty() ? shard->data : rounded_[shard - resources_.shards.data()];
}

}  // namespace tessera
