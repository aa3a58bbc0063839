#include "optim/sgd.h"

#include <utility>

#include "kernels/sgd/op.h"
#include "runtime/check.h"

namespace tessera {

Sgd::Sgd(std::vector<ParameterShard> shards, const SgdOptions& options)
    : Optimizer(std::move(shards)), options_(options) {
  check(options.momentum >= 0.0, "sgd: momentum is {}; it must be at least 0", options.momentum);
  check(!options.nesterov || options.momentum > 0.0, "sgd: nesterov needs a momentum above 0");
  if (options.momentum > 0.0) momentum_ = zeros_like_shards();
}

NamedTensors Sgd::state() const {
  NamedTensors tensors;
  for (std::size_t i = 0; i < momentum_.size(); ++i) {
    tensors.emplace_back(shards()[i].name + ".momentum", momentum_[i]);
  }
  return tensors;
}

void Sgd::update(const std::vector<std::size_t>& which, double learning_rate,
                 const GradientScale& gradient_scale) {
  std::vector<SgdTensors> tensors;
  std::vector<Copied> copies;
  for (const std::size_t i : which) {
    const ParameterShard& shard = shards()[i];
    tensors.push_back({.p = shard.data,
                       .b = momentum_.empty() ? Tensor() : momentum_[i],
                       .gradient = shard.gradient,
                       .decay = shard.decay});
    copies.push_back({shard.copy, shard.data, shard.rounding});
  }
  sgd(tensors,
      {.learning_rate = learning_rate,
       .momentum = options_.momentum,
       .nesterov = options_.nesterov,
       .weight_decay = options_.weight_decay,
       .gradient_scale = gradient_scale.number,
       .first_step = number() == 1,
       .optimizer = place()},
      gradient_scale.tensor);
  write_copies(copies);
}

}  // namespace tessera
