#include "tools/plan/plan.h"

#include <catch2/catch.hpp>

#include "models/gpt2/model.h"
#include "tools/bench/workload.h"
#include "tools/config/sharding_options.h"
#include "tools/plan/crossing.h"
#include "tools/train/resolve.h"

namespace tessera {

using Catch::Contains;

namespace {

Config fsdp(const std::string& preset) {
  Config config;
  config.model.preset = preset;
  config.sharding.strategy = StrategyKind::fsdp;
  return config;
}

/// The line of a page that begins with `word`, its words separated by one space; the last if there
/// are several.
std::string line_of(const std::string& page, const std::string& word) {
  std::istringstream lines(page);
  std::string found;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string joined;
    for (std::string w; words >> w;) joined += (joined.empty() ? "" : " ") + w;
    if (joined.starts_with(word + " ")) found = joined;
  }
  return found;
}

}  // namespace

TEST_CASE("plan: GPT-2 on one rank takes 4 + 4 + 8 bytes for each of its 124439808 parameters") {
  Config config = fsdp("gpt2");
  config.sharding.strategy = StrategyKind::single;
  const std::string page = plan(config, {});
  CHECK_THAT(page, Contains("single on 1 rank ") && Contains("124439808 parameters in 13 units"));
  CHECK_THAT(line_of(page, "optimizer"), Contains("995518464"));  // 8 * 124439808
  CHECK_THAT(page, Contains("activations") && Contains("not predicted"));
}

TEST_CASE("plan: 1024 ranks, every strategy in one table") {
  const std::string page = plan(fsdp("gpt2"), {.ranks = 1024, .nodes = 128});
  CHECK_THAT(page, Contains("fsdp on 1024 ranks") && Contains("8 per node"));
  for (const std::string& name : strategy_variants()) CHECK_FALSE(line_of(page, name).empty());
  // ddp keeps 16 bytes per parameter, padding aside, on any number of ranks.
  CHECK_THAT(line_of(page, "ddp"), Contains("474.70 MiB 474.70 MiB 949.40 MiB 0 B"));
  // The mean over all ranks of what they own is the model's 4 bytes per parameter over 1024.
  CHECK_THAT(line_of(page, "parameters"), Contains("474.70 KiB"));
}

TEST_CASE("plan: a strategy that does not suit the ranks says why, the others are shown") {
  Config groups_of_five = fsdp("gpt2-mini");
  groups_of_five.sharding.reshard_group = 5;
  const std::string page = plan(groups_of_five, {.ranks = 5});  // hsdp's rows are of one rank
  CHECK_THAT(line_of(page, "hsdp"), Contains("5 does not divide the 1 ranks that share the model"));
  CHECK_THAT(line_of(page, "zero3"), Contains("MiB"));
  Config single = fsdp("gpt2-mini");
  single.sharding.strategy = StrategyKind::single;
  REQUIRE_THROWS_WITH(plan(single, {.ranks = 5}), Contains("choose ddp"));
  REQUIRE_THROWS_WITH(plan(fsdp("gpt2-mini"), {.ranks = 6, .nodes = 4}),
                      Contains("6 ranks cannot be spread evenly over 4 nodes"));
}

TEST_CASE("plan: the partition is printed on request, the optimizer's state as it is") {
  Config config = fsdp("gpt2-mini");
  CHECK_THAT(plan(config, {.ranks = 2}), !Contains("elements owned by rank"));
  CHECK_THAT(plan(config, {.ranks = 2, .partition = true}),
             Contains("rows over 2 ranks: elements owned by rank") &&
                 Contains("transformer.h.3.mlp.c_proj.weight"));
  config.optimizer.name = OptimizerKind::sgd;
  CHECK_THAT(line_of(plan(config, {.ranks = 2}), "optimizer"), Contains("0 B 0 B 0 B 0"));
  config.optimizer.momentum = 0.9;
  const std::string page = plan(config, {.ranks = 2});
  CHECK(line_of(page, "optimizer").substr(10) == line_of(page, "parameters").substr(11));
}

TEST_CASE("what leaves a node: by group, on a mesh of rows and columns") {
  const auto model = make_model(resolve(workload("tiny", 0, 0)));
  const auto share = [&](StrategyKind kind, int shard_size, int ranks_per_node) {
    const ShardingOptions options{.strategy = kind, .shard_size = shard_size};
    return bytes_across_nodes(model->units(), options, 8, ranks_per_node, 1e9);
  };
  // Of seven others, four are on the other node; on one node, none; on eight, all.
  CHECK(*share(StrategyKind::fsdp, 0, 4) == Approx(1e9 * 4 / 7));
  CHECK(*share(StrategyKind::ddp, 0, 4) == Approx(1e9 * 4 / 7));
  CHECK(*share(StrategyKind::zero3, 0, 8) == 0.0);
  CHECK(*share(StrategyKind::ddp, 0, 1) == Approx(1e9));
  // Rows of 4 on nodes of 4: what is sent within the row stays, the rest leaves. Rows of 2 on the
  // same nodes: of the column's three others, two are elsewhere. Rows of 4 on nodes of 2: of the
  // row's three others, two.
  const double row_of_4 = 1e9 - *share(StrategyKind::hsdp, 4, 4);
  const double row_of_2 = 1e9 - *share(StrategyKind::hsdp, 2, 2);
  CHECK(row_of_4 > 0.0);
  CHECK(*share(StrategyKind::hsdp, 2, 4) == Approx((1e9 - row_of_2) * 2 / 3));
  CHECK(*share(StrategyKind::hsdp, 4, 2) == Approx(row_of_4 * 2 / 3 + 1e9 - row_of_4));
  CHECK_FALSE(bytes_across_nodes(model->units(), {.strategy = StrategyKind::hsdp, .shard_size = 4},
                                 12, 6, 1)
                  .has_value());
}

TEST_CASE("what leaves a node: a row's own traffic is that of the exchanges in it") {
  // By hand, for one micro-batch in f32 with parameters kept whole after forward: each element is
  // gathered once and reduced once, and a rank of a row of 2 sends half of all, padding included.
  // Between them the ranks of a row send the norm's f32 and two i64 as well.
  const auto model = make_model(resolve(workload("tiny", 0, 0)));
  const ShardingOptions options{
      .strategy = StrategyKind::hsdp, .shard_size = 2, .reshard_group = 1};
  const Partition partition(Layout::rows, 2, make_buckets(model->units()));
  double elements = 0.0;
  for (const BucketLayout& bucket : partition.buckets()) {
    for (const Segment& segment : bucket.segments) {
      elements += static_cast<double>(segment.range.count);
    }
  }
  const double in_row = 2 * 4 * elements / 2 + (4.0 + 16.0);
  CHECK(1e9 - *bytes_across_nodes(model->units(), options, 4, 2, 1e9) ==
        Approx(in_row).margin(0.5));
}

}  // namespace tessera
