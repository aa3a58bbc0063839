// A tour in one page: a network of two layers learns which points of a square lie in a circle.
//
// Run build/bin/tour. docs/autograd.md walks through it.
#include <fmt/format.h>

#include "autograd/engine.h"
#include "autograd/module.h"
#include "autograd/operations.h"
#include "optim/adamw.h"
#include "optim/shards.h"
#include "runtime/context.h"
#include "sharding/strategy/strategy.h"

using namespace tessera;

namespace {

struct Network final : Module {
  Parameter weight1{"hidden.weight", {32, 2}, Initializer::normal(1.0)};
  Parameter bias1{"hidden.bias", {32}, Initializer::zeros()};
  Parameter weight2{"output.weight", {2, 32}, Initializer::normal(0.2)};
  Parameter bias2{"output.bias", {2}, Initializer::zeros()};

  /// Points [N, 2] to the logits [N, 2] of "outside" and "inside".
  Variable operator()(const Variable& points) const {
    return linear(gelu(linear(points, weight1, bias1)), weight2, bias2);
  }
  void visit_parameters(const std::function<void(const Parameter&)>& visit) const override {
    for (const Parameter& parameter : {weight1, bias1, weight2, bias2}) visit(parameter);
  }
};

struct Sample {
  Tensor points;  // f32 [N, 2], uniform in [-1, 1)^2
  Tensor labels;  // i32 [N], 1 inside the circle of radius 0.8
};

Sample draw(std::int64_t count, std::uint64_t seed) {
  const RandomStream random(seed, "points");
  std::vector<float> points;
  std::vector<std::int32_t> labels;
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(count); ++i) {
    const float x = 2.0f * random.uniform(2 * i) - 1.0f;
    const float y = 2.0f * random.uniform(2 * i + 1) - 1.0f;
    points.insert(points.end(), {x, y});
    labels.push_back(x * x + y * y < 0.64f ? 1 : 0);
  }
  return {Tensor::from(points, {count, 2}), Tensor::from(labels, {count})};
}

}  // namespace

int main() {
  RankContext rank({.threads = 2});
  const ContextGuard guard(rank);

  const Network network;
  Units units;
  units.push_back(std::make_unique<Unit>("network", parameters_of(network)));
  const auto strategy = make_single_strategy(units, /*seed=*/1);
  AdamW optimizer(shards_for_optimizer(strategy->shards()));

  const Sample sample = draw(512, /*seed=*/2);
  const auto forward = [&](const Variable& points) { return network(points); };
  for (int step = 0; step <= 200; ++step) {
    Step sharded = strategy->start_step();
    const Variable logits = units[0]->run(forward, Variable(sample.points));
    const Variable loss = cross_entropy(logits, sample.labels);
    backward(loss);
    sharded.finish_micro_batch();
    sharded.update([&] { optimizer.step(/*learning_rate=*/0.02); });
    if (step % 50 == 0) fmt::print("step {:3}  loss {:.4f}\n", step, loss.data().item<float>());
  }
}
