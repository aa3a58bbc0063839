// The order of a step's calls: every wrong order is an error that names the step.
#include "sharding/strategy/step.h"

#include <catch2/catch.hpp>
#include <thread>

#include "runtime/check.h"
#include "sharding/comm/stream.h"
#include "tests/sharding/ranks.h"
#include "tests/sharding/toy_net.h"
#include "tests/support/device.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {

using Catch::Contains;
using test::ToyNet;
using test::ToyTraining;

namespace {

/// A strategy on one rank that communicates with itself.
void on_one_rank(const ShardingOptions& options,
                 const std::function<void(ToyNet&, Strategy&, Communicator&)>& body) {
  test::on_ranks(1, [&](Communicator& world) {
    ToyNet net(2);
    const auto strategy = make_strategy(net.units, options, 3, &world);
    body(net, *strategy, world);
  });
}

Variable loss_of(const ToyNet& net) {
  return net.loss(ToyTraining::tokens("ids", 0, 0), ToyTraining::tokens("targets", 0, 0), 1.0);
}

void micro_batch(const ToyNet& net, Step& step) {
  backward(loss_of(net));
  step.finish_micro_batch();
}

}  // namespace

TEST_CASE("a backward pass outside a step is an error") {
  on_one_rank({.strategy = StrategyKind::ddp}, [](ToyNet& net, Strategy&, Communicator&) {
    CHECK_THROWS_WITH(backward(loss_of(net)), Contains("outside the micro-batches of a step"));
  });
}

TEST_CASE("an update before the last micro-batch names the step and the missing call") {
  on_one_rank({.strategy = StrategyKind::fsdp, .micro_batches = 2},
              [](ToyNet& net, Strategy& strategy, Communicator&) {
                Step step = strategy.start_step();
                micro_batch(net, step);
                bool written = false;
                CHECK_THROWS_WITH(step.update([&] { written = true; }),
                                  Contains("step 1: update() comes after 1 of 2 micro-batches") &&
                                      Contains("finish_micro_batch()"));
                CHECK_THROWS_WITH(step.gradient_norm(), Contains("step 1: gradient_norm()"));
                CHECK_FALSE(written);
              });
}

TEST_CASE("one micro-batch too many is an error") {
  on_one_rank({.strategy = StrategyKind::fsdp}, [](ToyNet& net, Strategy& strategy, Communicator&) {
    Step step = strategy.start_step();
    micro_batch(net, step);
    CHECK_THROWS_WITH(step.finish_micro_batch(),
                      Contains("step 1 has finished its 1 micro-batches") && Contains("update()"));
    step.discard();
  });
}

TEST_CASE("a step that was not applied is an error of the next, not stale weights") {
  on_one_rank({.strategy = StrategyKind::zero2},
              [](ToyNet& net, Strategy& strategy, Communicator&) {
                {
                  Step step = strategy.start_step();
                  micro_batch(net, step);
                }
                CHECK_THROWS_WITH(strategy.start_step(), Contains("step 1 ended without update()"));
              });
}

TEST_CASE("a step that ends early is given up") {
  on_one_rank({.strategy = StrategyKind::fsdp, .micro_batches = 2},
              [](ToyNet& net, Strategy& strategy, Communicator&) {
                {
                  Step step = strategy.start_step();
                  micro_batch(net, step);
                }
                Step step = strategy.start_step();
                micro_batch(net, step);
                micro_batch(net, step);
                CHECK_NOTHROW(step.update([] {}));
              });
}

TEST_CASE("masters are not written within a step, but by its update") {
  on_one_rank({.strategy = StrategyKind::fsdp}, [](ToyNet& net, Strategy& strategy, Communicator&) {
    Step step = strategy.start_step();
    CHECK_THROWS_WITH(strategy.write_masters([] {}), Contains("step 1 is under way"));
    micro_batch(net, step);
    CHECK_THROWS_WITH(strategy.write_masters([] {}), Contains("step.update()"));
    step.update(
        [&] { CHECK_THROWS_WITH(loss_of(net), Contains("while the masters are being written")); });
    CHECK_THROWS_WITH(step.update([] {}), Contains("step 1 has ended"));
    CHECK_NOTHROW(strategy.write_masters([] {}));
  });
}

TEST_CASE("after a write that fails half-way nothing runs until the masters are whole again") {
  on_one_rank({.strategy = StrategyKind::fsdp}, [](ToyNet& net, Strategy& strategy, Communicator&) {
    const NoGradient no_gradient;
    CHECK_THROWS_WITH(strategy.write_masters([] { fail("the file is cut short"); }),
                      Contains("cut short"));
    CHECK_THROWS_WITH(loss_of(net), Contains("failed half-way"));
    strategy.write_masters([] {});
    CHECK_NOTHROW(loss_of(net));
  });
}

TEST_CASE("every strategy computes with values written to the masters") {
  const StrategyKind kind =
      GENERATE(from_range(std::begin(test::kSeveralRanks), std::end(test::kSeveralRanks)));
  const DType dtype = GENERATE(DType::f32, DType::bf16);
  const Offload offload = GENERATE(Offload::none, Offload::optimizer);
  CAPTURE(name_of(kind), name_of(dtype), name_of(offload));
  on_one_rank({.strategy = kind, .compute_dtype = dtype, .offload = offload},
              [](ToyNet& net, Strategy& strategy, Communicator&) {
                const NoGradient no_gradient;
                loss_of(net);  // the slots hold the old values
                strategy.write_masters([&] {
                  for (const Shard& shard : strategy.shards()) shard.data.zero();
                });
                strategy.before_forward(*net.units.front());
                const auto values = test::to_doubles(net.table.data());
                CHECK(values == std::vector<double>(values.size(), 0.0));
                strategy.after_forward(*net.units.front());
              });
}

TEST_CASE("writing masters waits for the gathers that read them", "[cpu]") {
  on_one_rank({.strategy = StrategyKind::zero1}, [](ToyNet&, Strategy& strategy, Communicator&) {
    const Stream& stream = communication_stream();
    stream.synchronize();
    // The gathers come a while after the test has seen that they are late.
    std::atomic<bool> seen = false;
    stream.set_delay([&] {
      seen.wait(false);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    });
    strategy.write_masters([] {});  // queues gathers
    const Event gathered = stream.record();
    REQUIRE_FALSE(gathered.complete());
    seen = true;
    seen.notify_all();
    strategy.write_masters([&] { CHECK(gathered.complete()); });
    stream.synchronize();  // the last gathers are delayed, too
    stream.set_delay({});
  });
}

TEST_CASE("freezing or unfreezing a parameter after the strategy was made is an error") {
  for (const auto kind : {StrategyKind::ddp, StrategyKind::fsdp}) {
    on_one_rank({.strategy = kind}, [](ToyNet& net, Strategy& strategy, Communicator&) {
      {
        Step step = strategy.start_step();
        micro_batch(net, step);
        step.update([] {});
      }
      net.layers[1].up.set_trainable(false);
      CHECK_THROWS_WITH(strategy.start_step(),
                        Contains("parameter 'layer.1.up' was frozen after the strategy was made"));
    });
  }
}

}  // namespace tessera
