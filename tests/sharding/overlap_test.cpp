// An update in parts, under the next forward pass, has the bits of a whole one before it.
//
// On the CPU the update and the messages are delayed by random times. On GPUs the streams run in every way
// that their waits allow.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "optim/adamw.h"
#include "optim/groups.h"
#include "optim/shards.h"
#include "sharding/comm/stream.h"
#include "sharding/comm/threads/threads.h"
#include "tests/sharding/toy_net.h"
#include "tests/support/device.h"
#include "tests/support/progress.h"
#include "tests/support/random_delay.h"
#include "tests/support/waiting.h"

namespace tessera {

using test::ToyNet;
using test::ToyTraining;
using test::Trained;

namespace {

constexpr int kSeeds = 5;

/// `seed` above 0: with delays.
Trained train(const ShardingOptions& options, int ranks, bool by_unit, int seed) {
  Trained result;
  run_ranks(
      {.ranks = ranks, .device = test::device(), .threads = 1, .deadline = test::kSafetyLimit},
      [&](Communicator& world) {
        ToyNet net(3);
        const auto strategy = make_strategy(net.units, options, 3, &world);
        std::vector<OptimizerGroups::Group> groups(1);
        groups[0].optimizer = std::make_unique<AdamW>(shards_for_optimizer(strategy->shards()));
        const auto optimizer = std::make_shared<OptimizerGroups>(std::move(groups), 0.75);
        const auto rank = static_cast<std::uint64_t>(world.rank());
        for (const Stream& stream : {communication_stream(), update_stream()}) {
          if (seed == 0) continue;
          stream.set_delay(test::random_delay(
              RandomStream(static_cast<std::uint64_t>(seed), stream.name(), rank)));
        }
        const ToyTraining training;
        const std::vector rates = {0.05, 0.25};
        Trained trained;
        for (int step = 0; step < 2; ++step) {
          Step sharded = strategy->start_step();
          for (const float loss :
               training.accumulate_gradients(net, sharded, world, options.micro_batches, step)) {
            trained.losses.push_back(loss);
          }
          trained.norms.push_back(sharded.gradient_norm().value());
          const Tensor scale = Tensor::full({1}, DType::f32, 0.5);
          if (by_unit) {
            optimizer->start_step(rates, scale);
            sharded.update_by_unit([optimizer](int unit) { optimizer->update_unit(unit); });
          } else {
            sharded.update([&] { optimizer->step(rates, scale); }, Writes::masters_and_copies);
          }
        }
        training.collect_weights(*strategy, trained);
        for (const auto& [name, average] : optimizer->averages()) {
          trained.weights[name + " average"] = average.to_vector<float>();
        }
        if (world.rank() == 0) result = trained;
      });
  return result;
}

void expect_no_change(const ShardingOptions& options, int ranks = 2) {
  const Trained whole = train(options, ranks, /*by_unit=*/false, 0);
  int changed = 0;
  const auto compare = [&](int seed) {
    changed += !(train(options, ranks, /*by_unit=*/true, seed) == whole);
  };
  if (test::kOnGpu) {
    test::for_every_progress(2, [&] { compare(0); });
  } else {
    for (int seed = 1; seed <= kSeeds; ++seed) compare(seed);
  }
  CHECK(changed == 0);
}

}  // namespace

TEST_CASE("overlap: parts of an update wait for the step, and units for their parts") {
  SECTION("one rank") {
    expect_no_change({}, 1);
  }
  for (const StrategyKind strategy : {StrategyKind::ddp, StrategyKind::zero1, StrategyKind::fsdp}) {
    SECTION(std::string(name_of(strategy))) {
      expect_no_change({.strategy = strategy});
    }
  }
  for (const StrategyKind strategy :
       {StrategyKind::ddp, StrategyKind::zero2, StrategyKind::zero3}) {
    SECTION(fmt::format("{}, bf16, two micro-batches", name_of(strategy))) {
      expect_no_change({.strategy = strategy, .micro_batches = 2, .compute_dtype = DType::bf16});
    }
  }
}

}  // namespace tessera
