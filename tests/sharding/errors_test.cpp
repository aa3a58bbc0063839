// Failures end every rank with one message: the fault, its place, and advice.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>

#include "runtime/check.h"
#include "tests/sharding/ranks.h"
#include "tests/sharding/toy_net.h"
#include "tests/support/error_of.h"

namespace tessera {

using test::ToyNet;
using test::ToyTraining;

namespace {

void expect_rejected(const ShardingOptions& options, int ranks, const std::string& message) {
  REQUIRE_THROWS_WITH(check_options(options, {.ranks = ranks}), Catch::Contains(message));
}

/// Counts the waits that their deadline ended.
class CountingClock final : public DeadlineClock {
 public:
  bool wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, TimePoint end,
            const std::function<bool()>& done) override {
    const bool answer = DeadlineClock::wait(changed, lock, end, done);
    if (!answer) ++overdue;
    return answer;
  }
  std::atomic<int> overdue = 0;
};

/// The message that run_ranks raises when `body` runs on four ranks. No rank may wait for its
/// deadline.
std::string failure_of(const std::function<void(Communicator&)>& body) {
  CountingClock clock;
  const WorldOptions options = {
      .ranks = 4, .device = test::device(), .threads = 1, .deadline = {test::kSafetyLimit, clock}};
  const std::string message = test::error_of([&] { run_ranks(options, body); });
  CHECK(clock.overdue == 0);
  return message;
}

void train(ToyNet& net, Communicator& world, const ShardingOptions& options,
           const std::function<void(int step)>& before_step = {}) {
  const auto strategy = make_strategy(net.units, options, 3, &world);
  test::Trained trained;
  for (int step = 0; step < 3; ++step) {
    if (before_step) before_step(step);
    ToyTraining().step(net, *strategy, world, options.micro_batches, step, trained);
  }
}

}  // namespace

TEST_CASE("options that contradict each other are rejected") {
  expect_rejected({.strategy = StrategyKind::single}, 2, "choose ddp");
  expect_rejected({.strategy = StrategyKind::hsdp, .shard_size = 3}, 8, "shard_size 3");
  expect_rejected({.strategy = StrategyKind::ddp, .flatten_parameters = true}, 2,
                  "flatten_parameters is for fsdp and hsdp, not ddp");
  expect_rejected({.strategy = StrategyKind::fsdp, .shard_size = 2}, 2, "shard_size is for hsdp");
  expect_rejected({.strategy = StrategyKind::zero3, .reshard_group = 2}, 4, "not zero3");
  expect_rejected({.strategy = StrategyKind::fsdp, .reshard_group = 3}, 4, "does not divide");
  expect_rejected({.strategy = StrategyKind::fsdp, .live_gathers = 0}, 4, "at least 1");
  expect_rejected({.strategy = StrategyKind::fsdp, .compute_dtype = DType::f64}, 4, "not f64");
  expect_rejected({.strategy = StrategyKind::fsdp, .micro_batches = 0}, 4, "0 micro-batches");
  expect_rejected({.strategy = StrategyKind::zero2, .offload = Offload::all}, 2,
                  "sharding.offload all is for zero3");
  const auto narrow = [](ShardingOptions options) {
    if (options.compute_dtype == DType::f32) options.compute_dtype = DType::bf16;
    options.gradient_dtype = DType::bf16;
    options.strategy = StrategyKind::fsdp;
    return options;
  };
  expect_rejected(narrow({.micro_batches = 2}), 2,
                  "one micro-batch and one stage, and a step has 2");
  expect_rejected(narrow({.pipeline_parallel = 2}), 2, "sharding.pipeline_parallel=1");
  expect_rejected(narrow({.elastic = true}), 2, "train.elastic adds them up in f32");
  expect_rejected(narrow({.grid = 2}), 2, "sharding.grid adds them up in f32");
  expect_rejected(narrow({.compute_dtype = DType::f16}), 2, "compute_dtype bf16, not f16");
  expect_rejected(narrow({.reduce_dtype = DType::f16}), 2, "reduce_dtype bf16, not f16");
  expect_rejected(narrow({.rules = parse_placement_rules("*.bias -> ddp compute_dtype=f32")}), 2,
                  "rules: compute_dtype bf16, not f32");
  REQUIRE_THROWS_WITH(strategy_from_name("fsdp3"), Catch::Contains("single, ddp, zero1"));
}

TEST_CASE("a rank that fails in the middle of a step ends all ranks, with its reason") {
  for (const StrategyKind kind : test::kSeveralRanks) {
    INFO(name_of(kind));
    const std::string message = failure_of([&](Communicator& world) {
      ToyNet net;
      net.units.push_back(std::make_unique<Unit>("spare", std::vector<Parameter>{}));
      train(net, world, {.strategy = kind},
            [&](int step) { check(step != 1 || world.rank() != 2, "the disk is full"); });
    });
    CHECK(message == "rank 2: the disk is full");
  }
}

TEST_CASE("ranks with different models are named") {
  for (const StrategyKind kind : test::kSeveralRanks) {
    INFO(name_of(kind));
    const std::string message = failure_of([&](Communicator& world) {
      ToyNet net(world.rank() == 3 ? 5 : 4);
      train(net, world, {.strategy = kind});
    });
    CHECK_THAT(message, Catch::Contains("ranks disagree"));
    CHECK_THAT(message, Catch::Contains("rank 3"));
  }
}

TEST_CASE("weights used outside their unit are an error, not old values") {
  test::on_ranks(1, [&](Communicator& world) {
    ToyNet net;
    const auto strategy = make_strategy(net.units, {.strategy = StrategyKind::fsdp}, 3, &world);
    const Tensor ids = ToyTraining::tokens("ids", 0, 0);
    const NoGradient no_gradient;
    net.loss(ids, ids, 1.0);
    CHECK_THROWS_WITH(embedding(ids, net.table),
                      Catch::Contains("'table' was used while its window is closed"));
  });
}

}  // namespace tessera
