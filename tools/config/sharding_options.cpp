#include "tools/config/sharding_options.h"

#include <algorithm>

#include "runtime/check.h"

namespace tessera {
namespace {

constexpr std::string_view kFlat = "_flat";

}  // namespace

ShardingOptions sharding_options(const Config& config) {
  const ShardingConfig& sharding = config.sharding;
  const Prefetch prefetch = sharding.prefetch;
  return {
      .strategy = sharding.strategy,
      .flatten_parameters = sharding.flatten_parameters,
      .shard_size = static_cast<int>(sharding.shard_size),
      .expert_parallel = static_cast<int>(sharding.expert_parallel),
      .experts = {.sums = sharding.expert_sums,
                  .copies = sharding.expert_copies,
                  .pieces = sharding.expert_pieces},
      .tensor_parallel = static_cast<int>(sharding.tensor_parallel),
      .row_exchange = sharding.tensor_exchange,
      .context_parallel = static_cast<int>(sharding.context_parallel),
      .key_exchange = sharding.context_exchange,
      .pipeline_parallel = static_cast<int>(sharding.pipeline_parallel),
      .pipeline_schedule = sharding.pipeline_schedule,
      .pipeline_chunks = static_cast<int>(sharding.pipeline_chunks),
      .pipeline_stages = sharding.pipeline_stages,
      .grid = static_cast<int>(sharding.grid),
      .rules = sharding.rules,
      .buckets = sharding.buckets,
      .reshard_group = sharding.reshard_group,
      .live_gathers = static_cast<int>(sharding.live_gathers),
      .prefetch_in_forward = prefetch == Prefetch::both || prefetch == Prefetch::forward,
      .prefetch_in_backward = prefetch == Prefetch::both || prefetch == Prefetch::backward,
      .micro_batches = static_cast<int>(config.data.accumulation_steps),
      .reduce_every_micro_batch = sharding.reduce == ReduceAfter::every_micro_batch,
      .sum_replicas_once = sharding.sum_replicas_once,
      .elastic = config.train.elastic > 0,
      .compute_dtype = config.runtime.compute_dtype,
      .master_dtype = config.optimizer.master_dtype,
      .gradient_dtype = config.optimizer.gradient_dtype,
      .reduce_dtype = sharding.reduce_dtype,
      .offload = sharding.offload,
  };
}

int batch_ranks(const Config& config, int ranks) {
  return batch_ranks(sharding_options(config), ranks);
}

bool has_replicas(const ShardingConfig& sharding) {
  const auto holds = [](StrategyKind kind) {
    return kind == StrategyKind::ddp || kind == StrategyKind::hsdp;
  };
  return holds(sharding.strategy) ||
         std::any_of(sharding.rules.begin(), sharding.rules.end(),
                     [&](const PlacementRule& rule) { return holds(rule.strategy); });
}

const std::vector<std::string>& strategy_variants() {
  static const std::vector<std::string> variants = {"ddp",  "zero1",     "zero2", "zero3",
                                                    "fsdp", "fsdp_flat", "hsdp"};
  return variants;
}

Config variant_of(const Config& base, const std::string& variant) {
  const std::vector<std::string>& all = strategy_variants();
  check(std::find(all.begin(), all.end(), variant) != all.end(),
        "unknown strategy '{}'; the strategies to compare are {}", variant, fmt::join(all, ", "));
  const bool flat = variant.ends_with(kFlat);
  Config config = base;
  ShardingConfig& sharding = config.sharding;
  sharding.strategy =
      strategy_from_name(variant.substr(0, variant.size() - (flat ? kFlat.size() : 0)));
  sharding.flatten_parameters = flat;
  const bool is_fsdp =
      sharding.strategy == StrategyKind::fsdp || sharding.strategy == StrategyKind::hsdp;
  const bool gathers = is_fsdp || sharding.strategy == StrategyKind::zero3;
  if (!has_hsdp(sharding_options(config))) sharding.shard_size = 0;
  if (!gathers && sharding.offload == Offload::all) sharding.offload = Offload::optimizer;
  if (!is_fsdp && sharding.reshard_group > 1) sharding.reshard_group = 0;
  if (!has_replicas(sharding)) sharding.check_replicas = 0;
  return config;
}

std::string variant_name(const ShardingOptions& options) {
  return std::string(name_of(options.strategy)) +
         std::string(options.flatten_parameters ? kFlat : "");
}

}  // namespace tessera
