#include "optim/ema.h"

#include <utility>

#include "kernels/add/op.h"
#include "kernels/cast/op.h"
#include "kernels/scale/op.h"
#include "runtime/check.h"
#include "runtime/context.h"

namespace tessera {
namespace {

/// The averages as parameters, with the weights as gradients.
std::vector<ParameterShard> averages_of(const std::vector<ParameterShard>& shards) {
  const CategoryScope scope(Category::optimizer);
  current_stream().synchronize();  // the host reads weights in its memory
  std::vector<ParameterShard> averages;
  for (const ParameterShard& shard : shards) {
    const Shape& shape = shard.data.shape();
    const bool on_host = shard.data.device() == Device{};
    const Tensor average =
        on_host ? Tensor::empty_on_host(shape, DType::f32) : Tensor::empty(shape, DType::f32);
    if (shard.data.dtype() == DType::f32) {
      average.copy_from(shard.data);
    } else {
      cast(average, shard.data);
    }
    averages.push_back(
        {.name = shard.name, .data = average, .gradient = shard.data, .unit = shard.unit});
  }
  return averages;
}

}  // namespace

Ema::Ema(const std::vector<ParameterShard>& shards, double decay, std::size_t place)
    : decay_(decay),
      sgd_(averages_of(shards), {.weight_decay = 1.0}),
      minus_one_(Tensor::full({1}, DType::f32, -1.0)),
      on_device_(Tensor::empty({1}, DType::f32)),
      scale_(-1.0) {
  check(0.0 < decay && decay < 1.0, "ema: the decay is {}; it must be above 0 and below 1", decay);
  sgd_.place_ = place;
}

void Ema::start_step(const GradientScale& of_update) {
  sgd_.start_step();
  scale_.tensor = of_update.tensor.defined() ? on_device_ : Tensor();
  if (!of_update.tensor.defined()) return;
  scale(on_device_, of_update.tensor, 0.0);  // NaN if it is not finite
  add(on_device_, on_device_, minus_one_);
}

NamedTensors Ema::averages() const {
  NamedTensors averages;
  for (const ParameterShard& shard : sgd_.shards()) averages.emplace_back(shard.name, shard.data);
  return averages;
}

}  // namespace tessera
