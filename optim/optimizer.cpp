#include "optim/optimizer.h"

#include <utility>

#include "runtime/check.h"

namespace tessera {

Optimizer::Optimizer(std::vector<ParameterShard> shards, bool takes_bf16)
    : shards_(std::move(shards)) {
  for (const ParameterShard& shard : shards_) {
    const DType dtype = shard.data.defined() ? shard.data.dtype() : DType::u8;
    check(dtype == DType::f32 || (takes_bf16 && dtype == DType::bf16),
          "optimizer: the data of {} is {}; it must be f32{}", shard.name, describe(shard.data),
          takes_bf16 ? " or bf16" : "");
  }
}

void Optimizer::step(double learning_rate, const GradientScale& gradient_scale) {
  for (const ParameterShard& shard : shards_) {
    if (shard.data.numel() == 0) continue;
    check(shard.gradient.defined(), "optimizer: {} has no gradient; run backward first",
          shard.name);
    check(shard.gradient.numel() == shard.data.numel(),
          "optimizer: {} is {} and its gradient is {}; their element counts must be equal",
          shard.name, describe(shard.data), describe(shard.gradient));
  }
  ++steps_;
  update(learning_rate, gradient_scale);
}

void Optimizer::set_steps(std::int64_t steps) {
  check(steps >= 0, "optimizer: the number of updates done cannot be {}", steps);
  steps_ = steps;
}

std::vector<Tensor> Optimizer::zeros_like_shards() const {
  const CategoryScope scope(Category::optimizer);
  std::vector<Tensor> tensors;
  for (const ParameterShard& shard : shards_) {
    tensors.push_back(Tensor::zeros(shard.data.shape(), DType::f32));
  }
  return tensors;
}

}  // namespace tessera
