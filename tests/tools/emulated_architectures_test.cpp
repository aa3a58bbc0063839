// A training step of every family on every GPU that can be emulated: each launch fits into the
// architecture's shared memory, and kernels for one architecture alone run nowhere else.
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "runtime/emulation/device/architecture.h"
#include "runtime/emulation/toolkit/emulated_device.h"
#include "sharding/comm/threads/threads.h"
#include "tools/config/kernel_options.h"
#include "tools/config/sharding_options.h"
#include "tools/measure/workload.h"
#include "tools/train/session.h"

namespace tessera {
namespace {

/// A preset, and the widths that make it narrow.
struct Family {
  std::string preset;
  std::vector<std::string> widths;
};

/// All families with heads of this size.
std::vector<Family> families(std::int64_t head_size) {
  const std::string size = std::to_string(head_size);
  const std::vector<std::string> narrow = {"model.width=64", "model.mlp_width=64", "model.heads=2",
                                           "model.kv_heads=1", "model.head_size=" + size};
  std::vector<std::string> experts = narrow;
  experts.insert(experts.end(), {"model.experts=4", "model.expert_width=64"});
  return {{"gpt2-mini", {"model.heads=1", "model.width=" + size}},
          {"llama3-mini", narrow},
          {"qwen3-moe-mini", experts},
          {"llama4-mini", experts}};
}

/// The loss of the second step, in bf16. The first one's update is in it.
float second_loss(const Family& family) {
  std::vector<std::string> settings = {"runtime.device=cuda", "runtime.compute_dtype=bf16",
                                       "data.batch_size=1",   "data.sequence_length=72",
                                       "model.vocab_size=96", "model.layers=2"};
  settings.insert(settings.end(), family.widths.begin(), family.widths.end());
  const ResolvedConfig run = resolve(workload(family.preset, settings));
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
    for (const Family& family : families(head_size)) {
      std::vector<float> losses;
      for (const emulation::Architecture& architecture : emulation::kArchitectures) {
        emulation::DeviceOptions options = emulation::device_options();
        options.capability = architecture.capability;
        const emulation::DeviceOptionsGuard device(options);
        CAPTURE(family.preset, head_size, architecture.capability);
        losses.push_back(second_loss(family));
        CHECK(std::isfinite(losses.back()));
        // Hopper's kernels add in another order. Products in bf16 round to 2^-8.
        CHECK(losses.back() == Approx(losses.front()).epsilon(0.004));
      }
    }
  }
}

}  // namespace tessera
