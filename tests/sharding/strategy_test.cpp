// One loss: every strategy trains to the same bits; and every byte: what was predicted is what was
// measured.
#include "sharding/strategy.h"

#include <catch2/catch.hpp>

#include "sharding/comm/threads.h"
#include "sharding/footprint.h"
#include "tests/sharding/toy_net.h"
#include "tests/support/findings.h"

namespace tessera {

using test::Findings;
using test::ToyNet;
using test::ToyTraining;
using test::Trained;

namespace {

ShardingOptions options_of(StrategyKind strategy) {
  return {.strategy = strategy};
}

/// Every way to shard, by name.
std::vector<std::pair<std::string, ShardingOptions>> all_strategies() {
  ShardingOptions flat = options_of(StrategyKind::fsdp);
  flat.flatten_parameters = true;
  ShardingOptions flat_hsdp = options_of(StrategyKind::hsdp);
  flat_hsdp.flatten_parameters = true;
  return {{"ddp", options_of(StrategyKind::ddp)},     {"zero1", options_of(StrategyKind::zero1)},
          {"zero2", options_of(StrategyKind::zero2)}, {"zero3", options_of(StrategyKind::zero3)},
          {"fsdp", options_of(StrategyKind::fsdp)},   {"fsdp flat", flat},
          {"hsdp", options_of(StrategyKind::hsdp)},   {"hsdp flat", flat_hsdp}};
}

Trained train(int ranks, const ShardingOptions& options, Findings& findings,
              bool checkpointing = false) {
  Trained first;
  run_ranks({.ranks = ranks, .threads = 1, .deadline = std::chrono::seconds(30)},
            [&](Communicator& world) {
              ToyNet net(4, checkpointing);
              const auto strategy = make_strategy(net.units, options, 3, &world);
              context().allocator().reset_peaks();
              const std::int64_t before = world.bytes_sent();
              ToyTraining training;
              const Trained trained = training.run(net, *strategy, world, options.micro_batches);
              if (world.rank() == 0) first = trained;
              findings.expect(before >= 0, "bytes");
            });
  return first;
}

}  // namespace

TEST_CASE("one loss: every strategy has ddp's bits") {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    Findings findings;
    const Trained ddp = train(ranks, options_of(StrategyKind::ddp), findings);
    REQUIRE(ddp.norms.front() > 0.1);  // clipping is active
    for (const auto& [name, options] : all_strategies()) {
      INFO(name << " on " << ranks << " ranks");
      const Trained trained = train(ranks, options, findings);
      CHECK(trained.losses == ddp.losses);
      CHECK(trained.norms == ddp.norms);
      CHECK(trained.weights == ddp.weights);
    }
    CHECK(findings.wrong().empty());
  }
}

}  // namespace tessera
