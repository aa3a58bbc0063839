// Communication that is delayed by random times changes no bit: every wait that is needed is there.
//
// On GPUs both streams are delayed, in every way that their waits allow.
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "sharding/comm/threads/threads.h"
#include "sharding/strategy/mesh_communicators.h"
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

constexpr int kSeeds = 40;

Trained train(const ShardingOptions& options, int ranks, int seed) {
  Trained result;
  run_ranks(
      {.ranks = ranks, .device = test::device(), .threads = 1, .deadline = test::kSafetyLimit},
      [&](Communicator& world) {
        ToyNet net(3);
        const auto strategy = make_strategy(net.units, options, 3, &world);
        if (seed > 0) {
          const RandomStream random(static_cast<std::uint64_t>(seed), "delays",
                                    static_cast<std::uint64_t>(world.rank()));
          context().side_stream("communication").set_delay(test::random_delay(random));
        }
        const ToyTraining training{.steps = 2};
        Trained trained;
        for (int step = 0; step < training.steps; ++step) {
          training.step(net, *strategy, world, options.micro_batches, step, trained);
        }
        training.collect_weights(*strategy, trained);
        if (world.rank() == 0) result = trained;
      });
  return result;
}

void expect_no_change(const ShardingOptions& options, int ranks = 2) {
  const Trained undelayed = train(options, ranks, 0);
  int changed = 0;
  if (test::kOnGpu) {
    test::for_every_progress(2, [&] { changed += !(train(options, ranks, 0) == undelayed); });
  } else {
    for (int seed = 1; seed <= kSeeds; ++seed) {
      changed += !(train(options, ranks, seed) == undelayed);
    }
  }
  CHECK(changed == 0);
}

}  // namespace

TEST_CASE("delays: communicators live until the calls that are queued on them are done", "[cpu]") {
  std::atomic<int> alive = 0;
  run_ranks({.ranks = 4, .device = test::device(), .threads = 1}, [&](Communicator& world) {
    const Stream& stream = context().side_stream("communication");
    std::weak_ptr<Communicator> split_off;
    {
      const Mesh mesh = {.axes = {{"replica", 2}, {"shard", 2}}};
      MeshCommunicators communicators(mesh, &world);
      communicators.along({"shard"}).barrier(stream);
      split_off = communicators.owned().front();
      stream.enqueue([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        alive += !split_off.expired();
      });
    }
    stream.synchronize();
  });
  CHECK(alive == 4);
}

TEST_CASE("delays: ddp") {
  expect_no_change({.strategy = StrategyKind::ddp});
}
TEST_CASE("delays: ddp, two micro-batches") {
  expect_no_change({.strategy = StrategyKind::ddp, .micro_batches = 2});
}
TEST_CASE("delays: zero1") {
  expect_no_change({.strategy = StrategyKind::zero1});
}
TEST_CASE("delays: zero2") {
  expect_no_change({.strategy = StrategyKind::zero2});
}
TEST_CASE("delays: zero3") {
  expect_no_change({.strategy = StrategyKind::zero3});
}
TEST_CASE("delays: fsdp") {
  expect_no_change({.strategy = StrategyKind::fsdp});
}
TEST_CASE("delays: fsdp, two micro-batches, bf16") {
  expect_no_change({.strategy = StrategyKind::fsdp,
                    .micro_batches = 2,
                    .compute_dtype = DType::bf16,
                    .reduce_dtype = DType::bf16});
}
TEST_CASE("delays: fsdp, flat, resharded in groups") {
  expect_no_change({.strategy = StrategyKind::fsdp, .flatten_parameters = true, .reshard_group = 2},
                   4);
}
TEST_CASE("delays: hsdp") {
  expect_no_change({.strategy = StrategyKind::hsdp, .shard_size = 2}, 4);
}

}  // namespace tessera
