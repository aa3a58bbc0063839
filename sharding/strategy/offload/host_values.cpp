#include "sharding/strategy/offload/host_values.h"

#include "kernels/cast/op.h"
#include "runtime/category.h"
#include "sharding/comm/stream.h"

namespace tessera {

HostValues::HostValues(const GroupResources& resources)
    : resources_(resources), rounded_(resources.shards.size()) {
  const Placement& placement = resources.group.placement;
  const bool stays_on_device =
      placement.parameters == Held::sharded && placement.offload == Offload::optimizer;
  if (!stays_on_device) return;
  current_.assign(resources.buckets().size(), false);
  const CategoryScope category(Category::parameters);
  for (int b = 0; b < resources.group.bucket_count(); ++b) {
    for (int p = 0; p < resources.buckets()[b].parameter_count(); ++p) {
      on_device_.push_back(Tensor::empty({resources.owned(b, p).count}, placement.compute_dtype));
    }
  }
}

Tensor HostValues::make(std::int64_t elements, DType dtype) {
  const CategoryScope category(Category::parameters);
  return Tensor::empty_on_host({elements}, dtype);
}

Tensor HostValues::copy_of(int b, int p) {
  const GroupPlan& group = resources_.group;
  const DType dtype = group.placement.compute_dtype;
  if (group.own_dtype(resources_.parameter(b, p)) == dtype) return {};
  const CategoryScope category(Category::parameters);
  Tensor& rounded = rounded_[static_cast<std::size_t>(resources_.index_of(b, p))];
  rounded = Tensor::empty_on_host({resources_.owned(b, p).count}, dtype);
  return rounded;
}

void HostValues::masters_changed(Writes writes) {
  communication_stream().synchronize();
  current_.assign(current_.size(), false);
  if (writes == Writes::masters_and_copies) return;
  for (std::size_t i = 0; i < rounded_.size(); ++i) {
    if (!rounded_[i].defined()) continue;
    cast(rounded_[i], resources_.shards[i].data.reshape(rounded_[i].shape()));
  }
}

void HostValues::fill_own_part(int b, const Tensor& buffer) {
  const bool stays_on_device = !on_device_.empty();
  Copies up, in_place;
  for (int p = 0; p < resources_.buckets()[b].parameter_count(); ++p) {
    if (resources_.group.lies_in_buffer(resources_.parameter(b, p))) continue;
    const int index = resources_.index_of(b, p);
    const Tensor place = resources_.own_place(b, p, buffer);
    if (!stays_on_device) {
      up.push_back({place, on_host(index)});
      continue;
    }
    const Tensor& here = on_device_[static_cast<std::size_t>(index)];
    if (!current_[static_cast<std::size_t>(b)]) up.push_back({here, on_host(index)});
    in_place.push_back({place, here});
  }
  queue_copies(std::move(up));
  queue_copies(std::move(in_place));
  if (stays_on_device) current_[static_cast<std::size_t>(b)] = true;
}

const Tensor& HostValues::on_host(int index) const {
  const auto i = static_cast<std::size_t>(index);
  return rounded_[i].defined() ? rounded_[i] : resources_.shards[i].data;
}

}  // namespace tessera
