#include "sharding/plan/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "runtime/check.h"

namespace tessera {
namespace {

bool is_fsdp(StrategyKind kind) {
  return kind == StrategyKind::fsdp || kind == StrategyKind::hsdp;
}

/// About half of all ranks: the largest power of two up to that which divides them. With such rows
/// sums have ddp's tree, and so its bits, for any number of ranks.
int default_row(int world_size) {
  auto ranks = static_cast<int>(std::bit_floor(static_cast<unsigned>(std::max(1, world_size / 2))));
  while (world_size % ranks != 0) ranks /= 2;
  return ranks;
}

Mesh mesh_of(const ShardingOptions& options, int world_size) {
  switch (options.strategy) {
    case StrategyKind::single:
      check(world_size == 1, "sharding.strategy single is for one rank, and there are {}; take ddp",
            world_size);
      return {1, 1};
    case StrategyKind::ddp:
      return {world_size, 1};
    case StrategyKind::hsdp: {
      const int shards = options.shard_size > 0 ? options.shard_size : default_row(world_size);
      check(world_size % shards == 0,
            "sharding.shard_size {} does not divide the {} ranks into equal groups", shards,
            world_size);
      return {world_size / shards, shards};
    }
    default:
      return {1, world_size};
  }
}

void check_consistent(const ShardingOptions& options, const Recipe& recipe) {
  const std::string_view strategy = name_of(options.strategy);
  check(!options.flatten_parameters || is_fsdp(options.strategy),
        "sharding.flatten_parameters is for fsdp and hsdp, not {}", strategy);
  check(options.shard_size == 0 || options.strategy == StrategyKind::hsdp,
        "sharding.shard_size is for hsdp, not {}", strategy);
  const int group = options.reshard_group;
  check(group <= 1 || is_fsdp(options.strategy),
        "sharding.reshard_after_forward {}: groups are for fsdp and hsdp, not {}", group, strategy);
  check(group >= 0 && (group == 0 || recipe.mesh.shards % group == 0),
        "sharding.reshard_after_forward {} does not divide the {} ranks that share the model",
        group, recipe.mesh.shards);
  check(options.live_gathers >= 1, "sharding.live_gathers {} must be at least 1",
        options.live_gathers);
  check(options.offload != Offload::all || !recipe.whole_parameters,
        "sharding.offload all is for zero3, fsdp and hsdp: with {} every GPU holds all parameters; "
        "take optimizer",
        strategy);
  check(options.micro_batches >= 1, "a step of {} micro-batches is none", options.micro_batches);
  for (const DType dtype : {options.compute_dtype, options.reduce_dtype}) {
    check(dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16,
          "training computes and reduces in f32, bf16 or f16, not {}", name_of(dtype));
  }
}

}  // namespace

Recipe recipe_of(const ShardingOptions& options, int world_size) {
  check(world_size >= 1, "there cannot be {} ranks", world_size);
  const Layout slices = options.flatten_parameters ? Layout::flat : Layout::rows;
  constexpr bool kWhole = true;
  constexpr bool kSharded = false;
  const Mesh mesh = mesh_of(options, world_size);
  Recipe recipe;
  switch (options.strategy) {  //       layout           parameters  gradients
    case StrategyKind::single:
    case StrategyKind::ddp:
      recipe = {mesh, Layout::whole, /*   */ kWhole, /* */ kWhole};
      break;
    case StrategyKind::zero1:
      recipe = {mesh, Layout::flat, /*    */ kWhole, /* */ kWhole};
      break;
    case StrategyKind::zero2:
      recipe = {mesh, Layout::flat, /*    */ kWhole, /* */ kSharded};
      break;
    case StrategyKind::zero3:
      recipe = {mesh, Layout::tensors, /* */ kSharded, kSharded};
      break;
    default:  // fsdp, hsdp
      recipe = {mesh, slices, /*          */ kSharded, kSharded};
      break;
  }
  check_consistent(options, recipe);
  return recipe;
}

}  // namespace tessera
