// Writes the trace of one training step of a small GPT-2 on two threads.
//
//   build/bin/trace_step fsdp trace.json
//   docs/figures/timeline.py trace.json docs/figures/timeline.svg
//
// Perfetto (ui.perfetto.dev) opens the JSON too. Without a file it prints the marks of rank 0 in order: when
// units are gathered, opened, closed and reduced.
#include <fmt/format.h>

#include "autograd/engine.h"
#include "models/gpt2/model.h"
#include "optim/adamw.h"
#include "optim/shards.h"
#include "runtime/check.h"
#include "sharding/comm/threads/threads.h"
#include "sharding/strategy/strategy.h"

using namespace tessera;

namespace {

constexpr int kRanks = 2;
constexpr int kWarmUp = 5;  // for the times of a trace; marks need one step
constexpr std::int64_t kTokens = 64;
constexpr Gpt2Config kModel = {
    .vocab_size = 2048, .context = kTokens, .layers = 4, .heads = 6, .width = 384};

Tensor random_tokens(int step, int rank) {
  const RandomStream random(1, "tokens", static_cast<std::uint64_t>(step),
                            static_cast<std::uint64_t>(rank));
  std::vector<std::int32_t> tokens;
  for (std::uint64_t i = 0; i < kTokens; ++i) {
    tokens.push_back(static_cast<std::int32_t>(random.below(i, kModel.vocab_size)));
  }
  return Tensor::from(tokens, {1, kTokens});
}

void train_step(Gpt2& model, Strategy& strategy, Optimizer& optimizer, int step, int rank) {
  const Tensor tokens = random_tokens(step, rank);
  Step sharded = strategy.start_step();
  const Variable loss = model.loss(tokens, tokens, 1.0 / (kTokens * kRanks), /*training=*/true);
  backward(loss);
  sharded.finish_micro_batch();
  sharded.gradient_norm();
  sharded.update([&] {
    const Span span("optimizer");
    optimizer.step(/*learning_rate=*/1e-3);
  });
}

void print_marks(const Profiler& profiler) {
  for (const Profiler::Record& record : profiler.records()) {
    if (record.instant) fmt::print("{}\n", record.name);
  }
}

void trace_rank(Communicator& world, const ShardingOptions& options, const std::string& path,
                std::vector<const Profiler*>& profilers) {
  Gpt2 model(kModel);
  const auto strategy = make_strategy(model.units(), options, /*seed=*/1, &world);
  AdamW optimizer(shards_for_optimizer(strategy->shards()));
  const Stream& communication = context().side_stream("communication");
  const int warm_up = path.empty() ? 1 : kWarmUp;
  for (int step = 0; step <= warm_up; ++step) {
    world.barrier(communication).synchronize();
    context().profiler().set_tracing(step == warm_up);
    train_step(model, *strategy, optimizer, step, world.rank());
  }
  communication.synchronize();
  context().profiler().set_tracing(false);
  profilers[world.rank()] = &context().profiler();
  world.barrier(communication).synchronize();
  if (world.rank() == 0) {
    if (path.empty())
      print_marks(context().profiler());
    else
      write_chrome_trace(path, profilers);
  }
  world.barrier(communication).synchronize();  // the other ranks' profilers live until here
}

}  // namespace

int main(int argument_count, char** arguments) try {
  check(argument_count == 2 || argument_count == 3, "usage: trace_step STRATEGY [TRACE.json]");
  const std::string path = argument_count == 3 ? arguments[2] : "";
  const ShardingOptions options = {.strategy = strategy_from_name(arguments[1])};
  std::vector<const Profiler*> profilers(kRanks);
  run_ranks({.ranks = kRanks, .threads = 1},
            [&](Communicator& world) { trace_rank(world, options, path, profilers); });
  return 0;
} catch (const Error& error) {
  fmt::print(stderr, "trace_step: {}\n", error.what());
  return 1;
}
