#include "optim/adamw.h"

#include <utility>

#include "kernels/adamw/op.h"
#include "runtime/check.h"
#include "runtime/step_values.h"

namespace tessera {

AdamW::AdamW(std::vector<ParameterShard> shards, const AdamWOptions& options)
    : Optimizer(std::move(shards), /*takes_bf16=*/true),
      options_(options),
      m_(zeros_like_shards(options.state_dtype)),
      v_(zeros_like_shards(options.state_dtype)) {
  check(options.state_dtype == DType::f32 || options.state_dtype == DType::bf16,
        "AdamW: the state's dtype is {}; it must be f32 or bf16", name_of(options.state_dtype));
}

NamedTensors AdamW::state() const {
  NamedTensors tensors;
  for (std::size_t i = 0; i < shards().size(); ++i) {
    tensors.emplace_back(shards()[i].name + ".m", m_[i]);
    tensors.emplace_back(shards()[i].name + ".v", v_[i]);
  }
  return tensors;
}

void AdamW::update(const std::vector<std::size_t>& which, double learning_rate,
                   const GradientScale& gradient_scale) {
  std::vector<AdamWTensors> tensors;
  for (const std::size_t i : which) {
    const ParameterShard& shard = shards()[i];
    const auto rounding = [seed = options_.seed,
                           name = shard.name + " rounding"](const StepNumbers& numbers) {
      return RandomStream(seed, name, static_cast<std::uint64_t>(numbers.update));
    };
    tensors.push_back({.p = shard.data,
                       .m = m_[i],
                       .v = v_[i],
                       .gradient = shard.gradient,
                       .copy = shard.copy,
                       .to_8_bits = shard.rounding,
                       .decay = shard.decay,
                       .rounding = stream_of_step(rounding({.update = number()}), rounding),
                       .elements = shard.elements});
  }
  adamw(tensors,
        {.learning_rate = learning_rate,
         .beta1 = options_.beta1,
         .beta2 = options_.beta2,
         .epsilon = options_.epsilon,
         .weight_decay = options_.weight_decay,
         .gradient_scale = gradient_scale.number,
         .step = number(),
         .optimizer = place()},
        gradient_scale.tensor);
}

}  // namespace tessera
