// sharding.check_replicas: a rank with a flipped bit is named.
#include "tools/train/replica_check.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <mutex>

#include "runtime/error.h"
#include "sharding/comm/threads/threads.h"
#include "tests/sharding/toy_net.h"
#include "tests/support/device.h"
#include "tools/config/sharding_options.h"
#include "tools/measure/workload.h"
#include "tools/train/resolve.h"
#include "tools/train/session.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::ToyNet;
using test::ToyTraining;

/// Flips a bit of an element, counted from the lowest.
void flip_bit(const Tensor& tensor, std::int64_t element, int bit) {
  const Tensor one = tensor.reshape({tensor.numel()}).slice(element, element + 1);
  std::vector<float> value = one.to_vector<float>();
  std::uint32_t bits = 0;
  std::memcpy(&bits, value.data(), sizeof bits);
  bits ^= 1u << bit;
  std::memcpy(value.data(), &bits, sizeof bits);
  one.copy_from(Tensor::from(value, {1}));
}

/// The message of every rank after a step of a toy model, in which a rank's gradient changes; -1: none.
std::vector<std::string> messages(const ShardingOptions& options, int ranks, int faulty) {
  std::vector<std::string> all(static_cast<std::size_t>(ranks));
  run_ranks({.ranks = ranks, .device = test::device(), .threads = 1}, [&](Communicator& world) {
    ToyNet net;
    const auto strategy = make_strategy(net.units, options, 3, &world);
    Step step = strategy->start_step();
    ToyTraining().accumulate_gradients(net, step, world, 1, 0);
    if (world.rank() == faulty) {
      const Shard* largest = &strategy->shards().front();
      for (const Shard& shard : strategy->shards()) {
        if (shard.data.numel() > largest->data.numel()) largest = &shard;
      }
      flip_bit(largest->gradient, largest->gradient.numel() - 1, 0);
    }
    try {
      check_replicas(*strategy, world, 7);
    } catch (const Error& error) {
      all[static_cast<std::size_t>(world.rank())] = error.what();
    }
    step.discard();
  });
  return all;
}

Config small_run(const char* strategy) {
  Config config = variant_of(workload("tiny", {}), strategy);
  config.data.batch_size = 12;
  config.sharding.check_replicas = 3;
  return config;
}

}  // namespace

TEST_CASE("replicas: the rank with a flipped bit in a gradient is named on every rank") {
  for (const std::string& message : messages({.strategy = StrategyKind::ddp}, 4, 2)) {
    CHECK_THAT(message,
               Contains("step 7: the reduced gradients of rank 2 differ from those of ranks "
                        "0, 1 and 3"));
  }
  for (const std::string& message : messages({.strategy = StrategyKind::ddp}, 2, 1)) {
    CHECK_THAT(message,
               Contains("the reduced gradients of ranks 0 and 1 should be equal, and differ"));
  }
  CHECK(messages({.strategy = StrategyKind::ddp}, 4, -1) == std::vector<std::string>(4));
}

TEST_CASE("replicas: hsdp compares the ranks with the same part") {
  const ShardingOptions three = {.strategy = StrategyKind::hsdp, .shard_size = 2};
  for (const std::string& message : messages(three, 6, 3)) {
    CHECK_THAT(message,
               Contains("the reduced gradients of rank 3 differ from those of ranks 1 and 5"));
  }
  CHECK(messages(three, 6, -1) == std::vector<std::string>(6));
  // A rule keeps some parameters whole; no two ranks have the same part of the others.
  const ShardingOptions mixed = {.strategy = StrategyKind::fsdp,
                                 .rules = parse_placement_rules("*.down -> ddp")};
  CHECK(messages(mixed, 4, -1) == std::vector<std::string>(4));
}

TEST_CASE("replicas: without a majority all ranks are named") {
  const Checksums a = {1, 5}, b = {2, 5}, c = {3, 5}, other_weights = {1, 6};
  CHECK(describe_difference({0, 1, 2}, {a, a, a}).empty());
  CHECK_THAT(describe_difference({0, 2, 4}, {a, b, a}), Contains("of rank 2 differ from"));
  CHECK_THAT(describe_difference({0, 1, 2, 3}, {a, b, b, a}),
             Contains("ranks 0, 1, 2 and 3 should be equal"));
  CHECK_THAT(describe_difference({0, 1, 2}, {a, b, c}),
             Contains("ranks 0, 1 and 2 should be equal"));
  CHECK_THAT(describe_difference({0, 1, 2, 3, 4}, {a, b, a, c, a}),
             Contains("of ranks 1 and 3 differ from those of ranks 0, 2 and 4"));
  CHECK_THAT(describe_difference({0, 1, 2}, {a, a, other_weights}),
             Contains("the weights of rank 2 differ from those of ranks 0 and 1"));
}

TEST_CASE("replicas: training stops at the next check after a weight has changed") {
  for (const char* strategy : {"ddp", "hsdp"}) {
    Config config = small_run(strategy);
    if (config.sharding.strategy == StrategyKind::hsdp) config.sharding.shard_size = 1;
    const ResolvedConfig run = resolve(config);
    std::mutex mutex;
    std::vector<std::int64_t> done;
    const auto train = [&] {
      run_ranks({.ranks = 3, .device = test::device(), .threads = 1}, [&](Communicator& world) {
        TrainingSession session(run, world);
        const BatchSource batches = random_tokens(config.data, 257);
        for (std::int64_t step = 1; step <= 7; ++step) {
          session.step(step, batches);
          if (world.rank() == 0) done.push_back(step);
          session.strategy().write_masters([&] {
            if (step == 4 && world.rank() == 1)
              flip_bit(session.strategy().shards().back().data, 0, 22);
          });
        }
      });
    };
    CHECK_THROWS_WITH(train(),
                      Contains("step 6: the weights of rank 1 differ from those of ranks 0 "
                               "and 2"));
    CHECK(done == std::vector<std::int64_t>{1, 2, 3, 4, 5});
  }
}

TEST_CASE("replicas: a strategy without any is refused", "[cpu]") {
  Config config = small_run("ddp");
  config.sharding.strategy = StrategyKind::fsdp;
  CHECK_THROWS_WITH(resolve(config), Contains("sharding.check_replicas") &&
                                         Contains("with fsdp no two ranks hold the same part"));
  config.sharding.rules = parse_placement_rules("*.bias -> ddp");
  CHECK_NOTHROW(resolve(config));
  CHECK(variant_of(small_run("ddp"), "zero1").sharding.check_replicas == 0);
}

}  // namespace tessera
