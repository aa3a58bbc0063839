#include "optim/adamw.h"

#include <utility>

#include "kernels/adamw/op.h"

namespace tessera {

AdamW::AdamW(std::vector<ParameterShard> shards, const AdamWOptions& options)
    : Optimizer(std::move(shards)),
      options_(options),
      m_(zeros_like_shards()),
      v_(zeros_like_shards()) {}

NamedTensors AdamW::state() const {
  NamedTensors tensors;
  for (std::size_t i = 0; i < shards().size(); ++i) {
    tensors.emplace_back(shards()[i].name + ".m", m_[i]);
    tensors.emplace_back(shards()[i].name + ".v", v_[i]);
  }
  return tensors;
}

void AdamW::update(std::size_t index, double learning_rate, double gradient_scale) {
  const ParameterShard& shard = shards()[index];
  adamw(shard.data, m_[index], v_[index], shard.gradient,
        {.learning_rate = learning_rate,
         .beta1 = options_.beta1,
         .beta2 = options_.beta2,
         .epsilon = options_.epsilon,
         .weight_decay = shard.decay ? options_.weight_decay : 0.0,
         .gradient_scale = gradient_scale,
         .step = steps()});
}

}  // namespace tessera
