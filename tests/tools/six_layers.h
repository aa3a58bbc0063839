// A small model and GPUs with a link of any bandwidth: plans with times that follow from their messages.
#pragma once

#include "sharding/plan/machine_rates.h"
#include "tools/config/config.h"

namespace tessera::test {

/// Six layers, and four rows in each of four micro-batches.
inline Config six_layers() {
  Config config;
  config.model = {.preset = "llama3-8b", .layers = 6, .heads = 4, .width = 32, .vocab_size = 96};
  config.model.kv_heads = 4;
  config.model.mlp_width = 64;
  config.data = {.batch_size = 16, .sequence_length = 32, .accumulation_steps = 4};
  config.sharding.strategy = StrategyKind::ddp;
  return config;
}

/// GPUs with links of so many bytes per second, and a tenth of that between nodes. They compute slowly.
inline MachineRates gpus_with_links(double bandwidth) {
  return {.name = "slow GPUs",
          .compute = {{.ranks = 1, .forward = 1e6, .backward = 1e6, .memory = 1e15}},
          .links = {{.ranks = 2, .bandwidth = bandwidth}},
          .network = Link{.bandwidth = bandwidth / 10}};
}

}  // namespace tessera::test
