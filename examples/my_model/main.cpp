// Trains the model of model.h under fsdp on two ranks, and again on one rank.
//
// Run build/bin/my_model. It prints the losses of both runs, and exits with status 1 if they do not
// fall or differ in a bit. docs/adding_a_model.md walks through the files.
#include <fmt/format.h>

#include "autograd/engine.h"
#include "examples/my_model/model.h"
#include "optim/adamw.h"
#include "optim/shards.h"
#include "runtime/error.h"
#include "sharding/comm/threads/threads.h"
#include "sharding/strategy/strategy.h"

using namespace tessera;

namespace {

constexpr int kSteps = 40;
constexpr int kMicroBatches = 2;  // of a step, on all ranks together
constexpr std::int64_t kRows = 4;
constexpr std::int64_t kTokens = 32;

/// Tokens of which each decides the next: 5 t + 3 modulo the vocabulary's 64. Every row begins
/// elsewhere.
Tensor tokens_of(int step, int micro_batch, std::int64_t first) {
  const RandomStream random(/*seed=*/1, "rows", static_cast<std::uint64_t>(step),
                            static_cast<std::uint64_t>(micro_batch));
  std::vector<std::int32_t> tokens;
  for (std::int64_t row = 0; row < kRows; ++row) {
    auto token = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(row), 64));
    for (std::int64_t t = 0; t < first + kTokens; ++t, token = (5 * token + 3) % 64) {
      if (t >= first) tokens.push_back(token);
    }
  }
  return Tensor::from(tokens, {kRows, kTokens});
}

/// The losses of all micro-batches of a run, in order. Their sum over a step is the step's mean loss.
std::vector<float> train(int ranks, StrategyKind kind) {
  std::vector<float> losses(kSteps * kMicroBatches);
  run_ranks({.ranks = ranks, .threads = 1}, [&](Communicator& world) {
    MyModel model(MyConfig{});
    const ShardingOptions options = {.strategy = kind, .micro_batches = kMicroBatches / ranks};
    const auto strategy = make_strategy(model.units(), options, /*seed=*/1, &world);
    AdamW optimizer(shards_for_optimizer(strategy->shards()));
    for (int step = 0; step < kSteps; ++step) {
      Step sharded = strategy->start_step();
      for (int i = world.rank(); i < kMicroBatches; i += ranks) {
        const Variable loss =
            model.loss(tokens_of(step, i, 0), tokens_of(step, i, 1),
                       1.0 / (kMicroBatches * kRows * kTokens), /*training=*/true);
        backward(loss);
        sharded.finish_micro_batch();
        losses[step * kMicroBatches + i] = loss.data().item<float>();
      }
      sharded.update([&] { optimizer.step(/*learning_rate=*/3e-3); });
    }
  });
  return losses;
}

float loss_of_step(const std::vector<float>& losses, int step) {
  return losses[step * kMicroBatches] + losses[step * kMicroBatches + 1];
}

}  // namespace

int main() try {
  const std::vector<float> sharded = train(/*ranks=*/2, StrategyKind::fsdp);
  const std::vector<float> alone = train(/*ranks=*/1, StrategyKind::ddp);
  for (int step = 0; step < kSteps; step += 13) {
    fmt::print("step {:2}  loss {:.2f}\n", step, loss_of_step(sharded, step));
  }
  const bool falls = loss_of_step(sharded, kSteps - 1) < 0.5f * loss_of_step(sharded, 0);
  fmt::print("the loss {}; one rank has {} losses\n", falls ? "falls" : "does not fall",
             sharded == alone ? "the same" : "other");
  return falls && sharded == alone ? 0 : 1;
} catch (const Error& error) {
  fmt::print(stderr, "my_model: {}\n", error.what());
  return 1;
}
