// From configuration keys to the options of the sharding layer; strategies by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sharding/plan/options.h"
#include "tools/config/config.h"

namespace tessera {

ShardingOptions sharding_options(const Config& config);

/// The ranks that share the rows of a batch. Raises Error if the factors do not divide `ranks`.
int batch_ranks(const Config& config, int ranks);

/// Whether ranks hold the same parts of some parameters and get the same reduced gradients: ddp, hsdp.
bool has_replicas(const ShardingConfig& sharding);

/// Every strategy for several ranks: "ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp_flat", "hsdp".
const std::vector<std::string>& strategy_variants();

/// `base` under another strategy. Keys that do not suit that strategy get their defaults. Raises
/// Error if `variant` is not one of strategy_variants().
Config variant_of(const Config& base, const std::string& variant);

/// "fsdp_flat" for fsdp with flattened parameters, and so on.
std::string variant_name(const ShardingOptions& options);

}  // namespace tessera
