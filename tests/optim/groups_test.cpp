#include "optim/groups.h"

#include <catch2/catch.hpp>

#include "optim/adamw.h"
#include "optim/sgd.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::normal_tensor;
using test::to_doubles;

ParameterShard shard(const std::string& name) {
  return {.name = name,
          .data = normal_tensor({10}, DType::f32, name),
          .gradient = normal_tensor({10}, DType::f32, name + ".gradient")};
}

/// AdamW for "a", with a linear schedule from 0.1 to 0 over 5 steps; SGD for "b" at 0.5.
OptimizerGroups two_groups(const ParameterShard& a, const ParameterShard& b,
                           double ema_decay = 0.0) {
  std::vector<OptimizerGroups::Group> groups;
  groups.push_back({std::make_unique<AdamW>(std::vector{a}),
                    {.kind = ScheduleKind::linear,
                     .learning_rate = 0.1,
                     .minimum_ratio = 0.0,
                     .total_steps = 5}});
  groups.push_back({std::make_unique<Sgd>(std::vector{b}, SgdOptions{.momentum = 0.9}),
                    {.kind = ScheduleKind::constant, .learning_rate = 0.5}});
  return OptimizerGroups(std::move(groups), ema_decay);
}

}  // namespace

TEST_CASE("groups: every group has the bits of its optimizer alone") {
  const test::Rank rank;
  const ParameterShard a = shard("a"), b = shard("b");
  OptimizerGroups groups = two_groups(a, b);
  const ParameterShard alone_a = shard("a"), alone_b = shard("b");
  AdamW adamw({alone_a});
  Sgd sgd({alone_b}, {.momentum = 0.9});
  for (int step = 0; step < 5; ++step) {
    const std::vector<double> rates = groups.learning_rates(step);
    REQUIRE(rates[0] == Approx(0.1 * (4 - step) / 4.0).margin(1e-15));
    REQUIRE(rates[1] == 0.5);
    groups.step(rates, 0.25);
    adamw.step(rates[0], 0.25);
    sgd.step(0.5, 0.25);
  }
  REQUIRE(groups.steps() == 5);
  REQUIRE(to_doubles(a.data) == to_doubles(alone_a.data));
  REQUIRE(to_doubles(b.data) == to_doubles(alone_b.data));
}

TEST_CASE("groups: state, steps and skipped steps are those of all groups") {
  const test::Rank rank;
  OptimizerGroups groups = two_groups(shard("a"), shard("b"));
  std::vector<std::string> names;
  for (const auto& [name, tensor] : groups.state()) names.push_back(name);
  REQUIRE(names == std::vector<std::string>{"a.m", "a.v", "b.momentum"});
  groups.step(std::vector{0.1, 0.1});
  groups.step_was_skipped();
  for (const auto& group : groups.groups()) REQUIRE(group.optimizer->steps() == 0);
  groups.set_steps(7);
  for (const auto& group : groups.groups()) REQUIRE(group.optimizer->steps() == 7);
}

TEST_CASE("groups: a missing gradient of the last group leaves the first as it is") {
  const test::Rank rank;
  const ParameterShard a = shard("a");
  ParameterShard b = shard("b");
  b.gradient = Tensor();
  OptimizerGroups groups = two_groups(a, b);
  const std::vector<double> before = to_doubles(a.data);
  REQUIRE_THROWS_WITH(groups.step(std::vector{0.1, 0.1}), Contains("b has no gradient"));
  REQUIRE(to_doubles(a.data) == before);
  REQUIRE(groups.steps() == 0);
  REQUIRE_THROWS_WITH(groups.step(std::vector{0.1}), Contains("1 learning rates; expected 2"));
}

}  // namespace tessera
