// The optimizer that a configuration describes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "optim/optimizer.h"
#include "sharding/strategy/strategy.h"
#include "tools/config/config.h"

namespace tessera {

/// Updates those shards that are trained. `seed`: that of the run, for stochastic rounding.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config,
                                          const std::vector<Shard>& shards, std::uint64_t seed);

/// Bytes of its state per trained element.
std::int64_t optimizer_bytes_per_element(const OptimizerConfig& config);

}  // namespace tessera
