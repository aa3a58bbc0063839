// One training step of a small GPT-2, from the text to the updated weights, with the size of everything.
//
// Run build/bin/one_step. docs/step.md walks through it.
#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "autograd/engine.h"
#include "models/gpt2/model.h"
#include "optim/adamw.h"
#include "optim/shards.h"
#include "runtime/context.h"
#include "sharding/strategy/strategy.h"

using namespace tessera;

namespace {

constexpr std::string_view kText = "to be, or not to be";
constexpr std::int64_t kTokens = kText.size() - 1;

/// A token is the number of a character. Each token's target is the next one.
Tensor characters(std::size_t first) {
  std::vector<std::int32_t> ids;
  for (const char c : kText.substr(first, kTokens)) ids.push_back(c);
  return Tensor::from(ids, {1, kTokens});
}

void print(std::string_view moment) {
  const MemoryAccount account = context().allocator().account();
  fmt::print("{:<22}", moment);
  for (const Category category :
       {Category::parameters, Category::gradients, Category::optimizer, Category::activations}) {
    fmt::print(" {:>8}", account[category].current);
  }
  fmt::print("\n");
}

}  // namespace

int main() {
  RankContext rank({.device = Device{}, .threads = 1});
  const ContextGuard guard(rank);
  const Tensor ids = characters(0), targets = characters(1);
  fmt::print("tokens  {}, {} to {}\n", to_string(ids), ids.to_vector<std::int32_t>().front(),
             ids.to_vector<std::int32_t>().back());

  Gpt2 model({.vocab_size = 128, .context = kTokens, .layers = 2, .heads = 2, .width = 32});
  const auto strategy = make_single_strategy(model.units(), /*seed=*/1);
  AdamW optimizer(shards_for_optimizer(strategy->shards()));

  fmt::print("\n{:<22} {:>8} {:>8} {:>8} {:>8}\n", "bytes after", "params", "grads", "moments",
             "activ.");
  print("the model is made");
  for (int number = 1; number <= 3; ++number) {
    Step step = strategy->start_step();
    const Variable loss = model.loss(ids, targets, 1.0 / kTokens, /*training=*/true);
    if (number == 1) print("forward");
    backward(loss);
    if (number == 1) print("backward");
    step.finish_micro_batch();
    step.update([&] { optimizer.step(/*learning_rate=*/1e-2); });
    if (number == 1) print("the update");
    fmt::print("{}loss of step {}: {:.3f}\n", number == 1 ? "\n" : "", number,
               loss.data().item<float>());
  }
}
