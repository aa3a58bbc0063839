// A training step of every family on every GPU that can be emulated: each launch fits into the
// architecture's shared memory, and kernels for one architecture alone run nowhere else.
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "runtime/emulation/device/architecture.h"
#include "runtime/emulation/toolkit/emulated_device.h"
#include "sharding/comm/threads/threads.h"
#include "tools/bench/workload.h"
#include "tools/config/kernel_options.h"
#include "tools/config/sharding_options.h"
#include "tools/train/session.h"

namespace tessera {
namespace {

/// The loss of the second step, in bf16. The first one's update is in it.
float second_loss(const std::string& model, std::int64_t head_size) {
  const std::vector<std::string> settings = {
      "runtime.device=cuda", "runtime.compute_dtype=bf16",
      "data.batch_size=1",   "data.sequence_length=72",
      "model.vocab_size=96", "model.layers=2",
      "model.heads=2",       "model.width=" + std::to_string(2 * head_size)};
  const ResolvedConfig run = resolve(workload(model, settings));
  float loss = 0.0f;
  run_ranks({.device = first_device(run.config.runtime), .threads = 0}, [&](Communicator& world) {
    choose_kernels(run.config);
    TrainingSession session(run, world);
    const BatchSource batches = random_tokens(run.config.data, session.model().shape().vocab_size);
    session.step(1, batches);
    loss = session.step(2, batches).loss;
  });
  return loss;
}

}  // namespace

TEST_CASE("every family takes steps on every GPU that is emulated") {
  for (const std::int64_t head_size : {64, 128}) {
    for (const char* model : {"gpt2-mini", "llama3-mini", "qwen3-moe-mini", "llama4-mini"}) {
      std::vector<float> losses;
      for (const emulation::Architecture& architecture : emulation::kArchitectures) {
        emulation::DeviceOptions options = emulation::device_options();
        options.capability = architecture.capability;
        const emulation::DeviceOptionsGuard device(options);
        CAPTURE(model, head_size, architecture.capability);
        losses.push_back(second_loss(model, head_size));
        CHECK(std::isfinite(losses.back()));
        // Hopper's kernels add in another order. Products in bf16 round to 2^-8.
        CHECK(losses.back() == Approx(losses.front()).epsilon(0.004));
      }
    }
  }
}

}  // namespace tessera
