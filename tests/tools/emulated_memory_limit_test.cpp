// A long run on a GPU with little more memory than a step is planned to need.
#include <catch2/catch.hpp>

#include "runtime/context.h"
#include "runtime/emulation/toolkit/emulated_device.h"
#include "sharding/comm/threads/threads.h"
#include "tools/measure/workload.h"
#include "tools/plan/dry_run.h"
#include "tools/train/session.h"

namespace tessera {
namespace {

constexpr std::int64_t kLongest = 64;
const Device kGpu = {DeviceType::cuda, 0};

/// Activations are most of its memory.
Config small_run() {
  Config config;
  config.model = {.preset = "gpt2-mini",
                  .layers = 1,
                  .heads = 1,
                  .width = 32,
                  .context = kLongest,
                  .vocab_size = 96};
  config.data = {.batch_size = 4, .sequence_length = kLongest};
  config.runtime.device = kGpu;
  config.runtime.threads = 1;
  return config;
}

/// Sequences whose length depends on the step. The second step has the longest.
BatchSource varying_lengths(const DataConfig& data) {
  const auto length_at = [](std::int64_t step) {
    return step == 2 ? kLongest : 1 + (step + 9) * 37 % kLongest;
  };
  const auto load = [=](std::int64_t step, std::int64_t first, std::int64_t rows) {
    DataConfig of_step = data;
    of_step.sequence_length = length_at(step);
    return random_tokens(of_step, 96).load(step, first, rows);
  };
  return {load, [=](std::int64_t step, std::int64_t, std::int64_t rows) {
            return rows * length_at(step);
          }};
}

}  // namespace

// The workspace of cuBLASLt, 32 MiB, is so much more than the rest that its tenth would hide every gap
// between blocks. So the room is a tenth of the rest.
TEST_CASE(
    "200 steps of varying lengths, and evaluations, fit in a tenth more memory than planned") {
  const ResolvedConfig run = resolve(small_run());
  const MemoryAccount planned = dry_run(run, {.device = kGpu, .threads = 1}).account;
  const std::int64_t rest = planned.total.peak - planned[Category::workspace].at_peak;
  emulation::DeviceOptions options = emulation::device_options();
  options.memory_bytes = static_cast<std::size_t>(planned.total.peak + rest / 10);
  const emulation::DeviceOptionsGuard guard(options);
  MemoryAccount account;
  run_ranks({.device = kGpu, .threads = 1}, [&](Communicator& world) {
    TrainingSession session(run, world);
    const BatchSource batches = varying_lengths(run.config.data);
    for (std::int64_t step = 1; step <= 200; ++step) {
      session.step(step, batches);
      if (step % 50 == 0) session.evaluate(3, batches);
    }
    account = context().allocator().account();
  });
  CHECK(account.total.peak == planned.total.peak);
  CHECK(account.reserved_peak <= account.total.peak + rest / 10);
}

}  // namespace tessera
