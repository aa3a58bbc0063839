#include "tools/config/sharding_options.h"

#include <algorithm>
#include <charconv>

#include "runtime/check.h"

namespace tessera {
namespace {

constexpr std::string_view kFlat = "_flat";

}  // namespace

std::optional<int> parse_reshard(std::string_view text) {
  if (text == "true") return 0;
  if (text == "false") return 1;
  int ranks = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ranks);
  if (error != std::errc() || end != text.data() + text.size() || ranks < 2) return std::nullopt;
  return ranks;
}

ShardingOptions sharding_options(const Config& config) {
  const ShardingConfig& sharding = config.sharding;
  const std::optional<int> reshard_group = parse_reshard(sharding.reshard_after_forward);
  check(reshard_group.has_value(), "sharding.reshard_after_forward cannot be '{}'",
        sharding.reshard_after_forward);
  const std::string& prefetch = sharding.prefetch;
  return {.strategy = strategy_from_name(sharding.strategy),
          .flatten_parameters = sharding.flatten_parameters,
          .shard_size = static_cast<int>(sharding.shard_size),
          .buckets = sharding.buckets,
          .reshard_group = *reshard_group,
          .live_gathers = static_cast<int>(sharding.live_gathers),
          .prefetch_in_forward = prefetch == "both" || prefetch == "forward",
          .prefetch_in_backward = prefetch == "both" || prefetch == "backward",
          .micro_batches = static_cast<int>(config.data.accumulation_steps),
          .reduce_every_micro_batch = sharding.reduce == "every_micro_batch",
          .compute_dtype = dtype_from_name(config.runtime.compute_dtype),
          .reduce_dtype = dtype_from_name(sharding.reduce_dtype),
          .offload = offload_from_name(sharding.offload)};
}

const std::vector<std::string>& strategy_variants() {
  static const std::vector<std::string> variants = {"ddp",  "zero1",     "zero2", "zero3",
                                                    "fsdp", "fsdp_flat", "hsdp"};
  return variants;
}

Config variant_of(const Config& base, const std::string& variant) {
  const std::vector<std::string>& all = strategy_variants();
  check(std::find(all.begin(), all.end(), variant) != all.end(),
        "there is no strategy '{}' to compare; there are {}", variant, fmt::join(all, ", "));
  const bool flat = variant.ends_with(kFlat);
  Config config = base;
  ShardingConfig& sharding = config.sharding;
  sharding.strategy = variant.substr(0, variant.size() - (flat ? kFlat.size() : 0));
  sharding.flatten_parameters = flat;
  if (variant != "hsdp") sharding.shard_size = 0;
  const bool whole = variant == "ddp" || variant == "zero1" || variant == "zero2";
  if (whole && sharding.offload == "all") sharding.offload = "optimizer";
  const bool takes_groups = variant == "hsdp" || sharding.strategy == "fsdp";
  if (!takes_groups && parse_reshard(sharding.reshard_after_forward) > 1) {
    sharding.reshard_after_forward = "true";
  }
  return config;
}

std::string variant_name(const ShardingOptions& options) {
  return std::string(name_of(options.strategy)) +
         std::string(options.flatten_parameters ? kFlat : "");
}

}  // namespace tessera
