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
    averages.push_back({.name = shard.name, .data = average, .gradient = shard.data});
  }
  return averages;
}

}  // namespace

Ema::Ema(const std::vector<ParameterShard>& shards, double decay, std::size_t place)
    : decay_(decay),
      sgd_(averages_of(shards), {.weight_decay = 1.0}),
      minus_one_(Tensor::full({1}, DType::f32, -1.0)) {
  check(0.0 < decay && decay < 1.0, "ema: the decay is {}; it must be above 0 and below 1", decay);
  sgd_.place_ = place;
}

void Ema::update(const GradientScale& of_update) {
  GradientScale minus = -1.0;
  if (of_update.tensor.defined()) {
    minus.tensor = Tensor::empty({1}, DType::f32);
    scale(minus.tensor, of_update.tensor, 0.0);  // NaN if it is not finite
    add(minus.tensor, minus.tensor, minus_one_);
  }
  sgd_.step(share(), minus);
}

NamedTensors Ema::averages() const {
  NamedTensors averages;
  for (const ParameterShard& shard : sgd_.shards()) averages.emplace_back(shard.name, shard.data);
  return averages;
}

}  // namespace tessera
