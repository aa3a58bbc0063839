#include "sharding/strategy/gradient_sums.h"

#include "kernels/add/op.h"
#include "kernels/tree_reduce/op.h"
#include "runtime/category.h"
#include "runtime/stream_log.h"
#include "sharding/comm/stream.h"
#include "sharding/strategy/offload/host_gradients.h"

namespace tessera {
namespace {

class DeviceGradients final : public GradientSums {
 public:
  explicit DeviceGradients(const GroupResources& resources) : resources_(resources) {}

  void make(int b, int p, const Tensor& window) override {
    Shard& shard = resources_.shard_of(b, p);
    const CategoryScope category(Category::gradients);
    shard.gradient = window.defined()
                         ? window.reshape(shard.data.shape())
                         : Tensor::zeros(shard.data.shape(), resources_.gradient_dtype());
  }

  void add(int b, const Tensors& reduced, bool first) override {
    queue_accumulation(of(b), reduced, first);
  }

  void complete(int) override {}

  Tensors of(int b) const override {
    Tensors sums;
    for (int p = 0; p < resources_.buckets()[b].trained_count; ++p) {
      sums.push_back(resources_.shard_of(b, p).gradient);
    }
    return sums;
  }

 private:
  const GroupResources resources_;
};

}  // namespace

std::unique_ptr<GradientSums> make_gradient_sums(const GroupResources& resources) {
  if (resources.group.placement.offload != Offload::none) {
    return std::make_unique<HostGradients>(resources);
  }
  return std::make_unique<DeviceGradients>(resources);
}

Tensor queue_sum_of(int count, const Tensor& all) {
  if (count == 1) return all;
  Tensors parts;
  const std::int64_t each = all.numel() / count;
  for (int i = 0; i < count; ++i) parts.push_back(all.slice(i * each, (i + 1) * each));
  communication_stream().enqueue([parts, bytes = static_cast<double>(all.bytes())] {
    log_memory(bytes + static_cast<double>(parts[0].bytes()));
    tree_reduce(parts[0], parts, Reduction::sum);
  });
  return parts[0];
}

void queue_accumulation(Tensors sums, Tensors values, bool first) {
  communication_stream().enqueue([sums = std::move(sums), values = std::move(values), first] {
    for (std::size_t i = 0; i < sums.size(); ++i) {
      if (sums[i].device() != values[i].device()) continue;  // a copy that logs itself
      log_memory((first ? 2.0 : 3.0) * static_cast<double>(sums[i].bytes()));
    }
    if (!first) return add_all(sums, values);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i].copy_from(values[i]);
  });
}

}  // namespace tessera
