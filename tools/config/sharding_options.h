// From configuration keys to the options of the sharding layer, and the strategies that are
// compared with each other by name.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sharding/plan/options.h"
#include "tools/config/config.h"

namespace tessera {

/// What `config` says about sharding. Raises Error on a name that does not exist.
ShardingOptions sharding_options(const Config& config);

/// sharding.reshard_after_forward as ShardingOptions::reshard_group: "true", "false" or a number of
/// ranks from 2; nothing for any other text.
std::optional<int> parse_reshard(std::string_view text);

/// Every strategy for several ranks: "ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp_flat", "hsdp".
const std::vector<std::string>& strategy_variants();

/// `base` under another strategy; keys that are not for that strategy get their defaults. Raises
/// Error if `variant` is none of strategy_variants().
Config variant_of(const Config& base, const std::string& variant);

/// "fsdp_flat" for fsdp with flattened parameters, and so on.
std::string variant_name(const ShardingOptions& options);

}  // namespace tessera
