// Units call the strategy's hooks in order, and strategy single owns every parameter.
#include "autograd/unit.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <optional>

#include "autograd/engine.h"
#include "autograd/operations.h"
#include "sharding/strategy/strategy.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {

using test::normal_tensor;

namespace {

struct RecordingHooks final : UnitHooks {
  void before_forward(Unit& unit) override { log.push_back("before_forward " + unit.name()); }
  void after_forward(Unit& unit) override { log.push_back("after_forward " + unit.name()); }
  void before_backward(Unit& unit) override { log.push_back("before_backward " + unit.name()); }
  void after_backward(Unit& unit) override { log.push_back("after_backward " + unit.name()); }
  std::vector<std::string> log;
};

/// Two units of one matrix each; the first is used at both ends, as tied embeddings are.
struct TiedNet {
  explicit TiedNet(bool checkpointing) {
    units.push_back(std::make_unique<Unit>("ends", std::vector{a}));
    units.push_back(std::make_unique<Unit>("middle", std::vector{b}));
    units[1]->set_checkpointing(checkpointing);
  }

  Variable operator()(const Tensor& x) {
    const auto apply = [](Unit& unit, const Parameter& weight, const Variable& h) {
      return unit.run([&](const Variable& v) { return linear(v, weight, Parameter()); }, h);
    };
    return apply(*units[0], a, apply(*units[1], b, apply(*units[0], a, Variable(x))));
  }

  Parameter a{"a", {4, 4}, Initializer::normal(0.5)};
  Parameter b{"b", {4, 4}, Initializer::normal(0.5)};
  Units units;
};

}  // namespace

TEST_CASE(
    "hooks come in order, and a unit that runs twice is complete after its first run's backward") {
  const test::Rank rank;
  for (const bool checkpointing : {false, true}) {
    TiedNet net(checkpointing);
    const auto owner = make_single_strategy(net.units, 1);
    RecordingHooks recorder;
    for (const auto& unit : net.units) unit->attach(&recorder);
    const Variable y = net(normal_tensor({3, 4}, DType::f32, "x"));
    backward(y, normal_tensor({3, 4}, DType::f32, "seed"));
    // Recomputation calls no hook of its own: the same list with and without checkpointing.
    CHECK(recorder.log == std::vector<std::string>{"before_forward ends", "after_forward ends",
                                                   "before_forward middle", "after_forward middle",
                                                   "before_forward ends", "after_forward ends",
                                                   "before_backward ends", "before_backward middle",
                                                   "after_backward middle", "before_backward ends",
                                                   "after_backward ends"});
  }
}

TEST_CASE("a run without gradients, or whose graph is dropped, is not waited for") {
  const test::Rank rank;
  TiedNet net(false);
  const auto owner = make_single_strategy(net.units, 1);
  RecordingHooks recorder;
  const Tensor x = normal_tensor({3, 4}, DType::f32, "x");
  {
    std::optional<NoGradient> scope;
    if (GENERATE(false, true)) scope.emplace();
    net(x);
  }
  for (const auto& unit : net.units) unit->attach(&recorder);
  backward(net(x), normal_tensor({3, 4}, DType::f32, "seed"));
  CHECK(recorder.log.back() == "after_backward ends");
}

TEST_CASE("single: owns every parameter once, initialized by address") {
  const test::Rank rank;
  TiedNet net(false);
  {
    const auto strategy = make_single_strategy(net.units, 9);
    const MemoryAccount account = context().allocator().account();
    CHECK(account[Category::parameters].current == 2 * 16 * 4);
    CHECK(account[Category::gradients].current == 2 * 16 * 4);
    REQUIRE(strategy->shards().size() == 2);
    const RandomStream random(9, "b");
    const auto values = net.b.data().to_vector<float>();
    for (std::size_t i = 0; i < 16; ++i) {
      CHECK(values[i] == static_cast<float>(0.5 * random.normal(i)));
    }
  }
  CHECK_FALSE(net.a.is_open());
  CHECK(context().allocator().account()[Category::parameters].current == 0);
}

TEST_CASE("single: a parameter that a step does not use gets a zero gradient, not the last one") {
  const test::Rank rank;
  TiedNet net(false);
  const auto strategy = make_single_strategy(net.units, 1);
  const Tensor x = normal_tensor({3, 4}, DType::f32, "x");
  const auto step_with = [&](const std::function<Variable()>& forward) {
    Step step = strategy->start_step();
    backward(forward(), normal_tensor({3, 4}, DType::f32, "seed"));
    step.finish_micro_batch();
    step.discard();
  };
  step_with([&] { return net(x); });
  CHECK(net.b.gradient().to_vector<float>() != std::vector<float>(16, 0.0f));
  step_with([&] { return linear(Variable(x), net.a, Parameter()); });
  CHECK(net.b.gradient().to_vector<float>() == std::vector<float>(16, 0.0f));
}

}  // namespace tessera
