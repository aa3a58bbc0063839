#include "optim/optimizer.h"

#include <utility>

#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/describe.h"

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
  may_have_been_skipped_ = true;
  GradientScale scale = gradient_scale;
  if (on_host()) {
    // On a GPU's rank, copies of the gradients and of the scale may still be under way.
    current_stream().synchronize();
    if (scale.tensor.defined()) scale.tensor = scale.tensor.to_host();
  }
  update(learning_rate, scale);
}

void Optimizer::step_was_skipped() {
  check(may_have_been_skipped_,
        "optimizer: a skipped step is reported, but there was no step since the last report");
  may_have_been_skipped_ = false;
  --steps_;
}

void Optimizer::set_steps(std::int64_t steps) {
  check(steps >= 0, "optimizer: the number of updates is {}; expected at least 0", steps);
  steps_ = steps;
  may_have_been_skipped_ = false;
}

bool Optimizer::on_host() const {
  return !shards_.empty() && shards_.front().data.device().is_cpu();
}

std::vector<Tensor> Optimizer::zeros_like_shards() const {
  const CategoryScope scope(Category::optimizer);
  std::vector<Tensor> tensors;
  for (const ParameterShard& shard : shards_) {
    const Shape& shape = shard.data.shape();
    tensors.push_back(on_host() ? Tensor::empty_on_host(shape, DType::f32)
                                : Tensor::empty(shape, DType::f32));
    tensors.back().zero();
  }
  return tensors;
}

}  // namespace tessera
