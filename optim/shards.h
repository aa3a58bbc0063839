// The optimizer's view of a strategy's shards.
#pragma once

#include <vector>

#include "optim/decay_rule.h"
#include "optim/optimizer.h"

namespace tessera {

/// One ParameterShard per trainable parameter, with weight decay by the decay rule. A template,
/// because optim/ does not include sharding/: `shards` is the result of Strategy::shards(), a list
/// of values with the members parameter, data, copy, gradient, unit and elements(). A parameter has a rounding().
template <typename Shards>
std::vector<ParameterShard> shards_for_optimizer(const Shards& shards) {
  std::vector<ParameterShard> trained;
  for (const auto& shard : shards) {
    if (!shard.parameter.trainable()) continue;
    trained.push_back({.name = shard.parameter.name(),
                       .data = shard.data,
                       .gradient = shard.gradient,
                       .copy = shard.copy,
                       .rounding = shard.parameter.rounding(),
                       .decay = decays(shard.parameter.name(), shard.parameter.shape()),
                       .elements = shard.elements(),
                       .unit = shard.unit});
  }
  return trained;
}

}  // namespace tessera
