#include "sharding/strategy/own_values.h"

#include "runtime/category.h"
#include "sharding/strategy/offload/host_values.h"

namespace tessera {
namespace {

class DeviceValues final : public OwnValues {
 public:
  explicit DeviceValues(const GroupResources& resources) : resources_(resources) {}

  Tensor make(std::int64_t elements, DType dtype) override {
    const CategoryScope category(Category::parameters);
    return Tensor::empty({elements}, dtype);
  }

  Tensor copy_of(int, int) override { return {}; }
  void masters_changed(Writes) override {}

  void fill_own_part(int b, const Tensor& buffer) override {
    Copies copies;
    for (int p = 0; p < resources_.buckets()[b].parameter_count(); ++p) {
      const Parameter& parameter = resources_.parameter(b, p);
      if (resources_.group.lies_in_buffer(parameter)) continue;
      copies.push_back(
          {resources_.own_place(b, p, buffer), resources_.shard_of(b, p).data, parameter});
    }
    queue_copies(std::move(copies));
  }

 private:
  const GroupResources resources_;
};

}  // namespace

std::unique_ptr<OwnValues> make_own_values(const GroupResources& resources) {
  if (resources.group.placement.offload != Offload::none) {
    return std::make_unique<HostValues>(resources);
  }
  return std::make_unique<DeviceValues>(resources);
}

}  // namespace tessera
