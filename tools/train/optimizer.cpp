#include "tools/train/optimizer.h"

#include "optim/adamw.h"
#include "optim/sgd.h"
#include "optim/shards.h"

namespace tessera {

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config,
                                          const std::vector<Shard>& shards, std::uint64_t seed) {
  std::vector<ParameterShard> trained = shards_for_optimizer(shards);
  if (config.name == OptimizerKind::sgd) {
    return std::make_unique<Sgd>(std::move(trained),
                                 SgdOptions{.momentum = config.momentum,
                                            .nesterov = config.nesterov,
                                            .weight_decay = config.weight_decay});
  }
  return std::make_unique<AdamW>(std::move(trained),
                                 AdamWOptions{.beta1 = config.beta1,
                                              .beta2 = config.beta2,
                                              .epsilon = config.epsilon,
                                              .weight_decay = config.weight_decay,
                                              .state_dtype = config.state_dtype,
                                              .seed = seed});
}

std::int64_t optimizer_bytes_per_element(const OptimizerConfig& config) {
  constexpr std::int64_t kF32 = 4;
  if (config.name == OptimizerKind::sgd) return config.momentum > 0.0 ? kF32 : 0;
  return 2 * static_cast<std::int64_t>(size_of(config.state_dtype));  // two moments
}

}  // namespace tessera
