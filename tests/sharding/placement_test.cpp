// The mesh of all kinds of parallelism, and the options that it refuses.
#include "sharding/plan/placement.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "tests/support/error_of.h"

namespace tessera {
namespace {

constexpr auto kFsdp = StrategyKind::fsdp;

std::string error_of(const ShardingOptions& options, int ranks) {
  return test::error_of([&] { check_options(options, {.ranks = ranks}); });
}

}  // namespace

TEST_CASE("mesh: all axes that have several ranks, those that send most last") {
  ShardingOptions options{.strategy = StrategyKind::hsdp,
                          .shard_size = 8,
                          .expert_parallel = 2,
                          .tensor_parallel = 2,
                          .context_parallel = 2,
                          .pipeline_parallel = 3};
  const Machine machine{.ranks = 96};
  const Mesh mesh = mesh_of(options, machine);
  CHECK(to_string(mesh) == "pipeline 3 x replica 2 x shard 2 x context 2 x expert 2 x tensor 2");
  CHECK(mesh.world_size() == 96);
  CHECK(data_axes(mesh) == Axes{"replica", "shard", "context", "expert"});
  CHECK(batch_axes(mesh) == Axes{"replica", "shard", "expert"});
  CHECK(replica_size(mesh) == 8);
  // Tensor ranks are neighbours; a stage is a third of all ranks.
  CHECK(mesh.place(1, "tensor") == 1);
  CHECK(mesh.place(2, "expert") == 1);
  CHECK(mesh.place(4, "context") == 1);
  CHECK(mesh.place(31, "pipeline") == 0);
  CHECK(mesh.place(32, "pipeline") == 1);

  options.strategy = StrategyKind::ddp;
  CHECK(to_string(mesh_of(options, machine)) ==
        "pipeline 3 x replica 4 x shard 1 x context 2 x expert 2 x tensor 2");
  options.strategy = StrategyKind::fsdp;
  CHECK(to_string(mesh_of(options, machine)) ==
        "pipeline 3 x replica 1 x shard 4 x context 2 x expert 2 x tensor 2");
  options.expert_parallel = options.context_parallel = 1;
  CHECK(to_string(mesh_of(options, machine)) == "pipeline 3 x replica 1 x shard 16 x tensor 2");
  // hsdp's shards are the data ranks of a node.
  options.strategy = StrategyKind::hsdp;
  options.shard_size = 0;
  CHECK(to_string(mesh_of(options, {.ranks = 96, .ranks_per_node = 8})) ==
        "pipeline 3 x replica 4 x shard 4 x tensor 2");
}

TEST_CASE("options: ranks that cannot be shared out are an error that names the factors") {
  CHECK(
      error_of(
          {.strategy = kFsdp, .tensor_parallel = 2, .context_parallel = 4, .pipeline_parallel = 3},
          48) == "no error");
  CHECK(
      error_of(
          {.strategy = kFsdp, .tensor_parallel = 2, .context_parallel = 4, .pipeline_parallel = 3},
          36) ==
      "the 36 ranks are no multiple of sharding.pipeline_parallel 3 x sharding.context_parallel "
      "4 x sharding.tensor_parallel 2");
  CHECK(error_of({.strategy = kFsdp, .tensor_parallel = 0}, 4) ==
        "the 4 ranks are no multiple of sharding.pipeline_parallel 1 x sharding.context_parallel 1 "
        "x sharding.tensor_parallel 0");
  // Expert ranks share out the batch ranks: 8 / (2 x 2).
  CHECK(error_of(
            {.strategy = kFsdp, .expert_parallel = 4, .tensor_parallel = 2, .context_parallel = 2},
            8) == "sharding.expert_parallel 4 does not divide the 2 ranks into equal groups");
  CHECK(error_of({.strategy = kFsdp, .tensor_parallel = 3}, 6) ==
        "sharding.tensor_parallel is 3; expected a power of two, so that sums are a tree");
  CHECK(error_of({.strategy = kFsdp, .context_parallel = 6}, 6) ==
        "sharding.context_parallel is 6; expected a power of two, so that sums are a tree");
}

TEST_CASE("options: a grid is a power of two, and a multiple of the ranks that divide sums") {
  for (const int grid : {6, -4}) {
    CHECK(error_of({.strategy = kFsdp, .tensor_parallel = 2, .grid = grid}, 4) ==
          fmt::format("sharding.grid is {}; expected a power of two", grid));
  }
  CHECK(error_of({.strategy = kFsdp, .tensor_parallel = 4, .grid = 2}, 4) ==
        "sharding.grid 2 is no multiple of sharding.tensor_parallel 4");
  CHECK(error_of({.strategy = kFsdp, .context_parallel = 4, .grid = 2}, 4) ==
        "sharding.grid 2 is no multiple of sharding.context_parallel 4");
  ShardingOptions both{.strategy = kFsdp, .tensor_parallel = 2, .context_parallel = 4, .grid = 4};
  CHECK(error_of(both, 8) ==
        "sharding.grid 4 is no multiple of sharding.context_parallel 4 x sharding.tensor_parallel "
        "2");
  both.grid = 8;
  CHECK(error_of(both, 8) == "no error");
}

}  // namespace tessera
