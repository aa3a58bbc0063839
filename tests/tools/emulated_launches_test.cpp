// The launches of a layer, as numbers: one more kernel in a block turns this red without a GPU.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/emulation/toolkit/emulated_device.h"
#include "tests/support/device.h"
#include "tools/bench/counts/emulated/count_step.h"
#include "tools/measure/workload.h"

namespace tessera {
namespace {

/// A mini with narrower layers, in 16 bits and with one sequence. Launches do not depend on the widths.
ResolvedConfig run_of(const std::string& model, int layers,
                      const std::vector<std::string>& widths) {
  std::vector<std::string> settings = {"runtime.device=cuda",
                                       "runtime.compute_dtype=bf16",
                                       "data.batch_size=1",
                                       "data.sequence_length=64",
                                       "model.vocab_size=96",
                                       "model.width=64",
                                       "model.layers=" + std::to_string(layers)};
  settings.insert(settings.end(), widths.begin(), widths.end());
  return resolve(workload(model, settings));
}

/// One step of it.
StepWork step_of(const std::string& model, int layers, const std::vector<std::string>& widths) {
  emulation::DeviceOptions options = emulation::device_options();
  options.progress = emulation::Progress::eager;  // launches run in the order of the calls
  const emulation::DeviceOptionsGuard guard(options);
  return count_step(run_of(model, layers, widths));
}

/// The launches that `layers` more layers add to a step.
struct Added {
  double forward, backward;
};

Added launches_of_layers(const std::string& model, int layers,
                         const std::vector<std::string>& widths) {
  const StepWork few = step_of(model, layers, widths), many = step_of(model, 2 * layers, widths);
  const StepWork added = combine({few, many}, {-1.0, 1.0});
  for (const auto& [key, work] : added) {
    if (work["launches"] != 0) {
      UNSCOPED_INFO(model << ", added: " << key.second << " " << work["launches"]);
    }
  }
  return {launches_in(added, StepPhase::forward), launches_in(added, StepPhase::backward)};
}

}  // namespace

TEST_CASE("launches of a layer, and of a layer and one with experts of Llama 4") {
  // Two heads of queries to one of keys; the kernels of attention for Hopper take heads of 64.
  const std::vector<std::string> narrow = {"model.heads=2", "model.kv_heads=1",
                                           "model.head_size=64", "model.mlp_width=64"};
  std::vector<std::string> experts = narrow;
  experts.emplace_back("model.expert_width=64");
  std::vector<std::string> in_8_bits = narrow;
  in_8_bits.emplace_back("runtime.compute_dtype=fp8");
  std::vector<std::string> in_blocks = in_8_bits;
  in_blocks.emplace_back("runtime.fp8_scales=blocks");
  std::vector<std::string> rounded_at_use = in_8_bits;
  rounded_at_use.emplace_back("optimizer.master_dtype=bf16");
  struct Expected {
    std::string model;
    int layers;
    std::vector<std::string> widths;
    double forward, backward;
  };
  for (const Expected& expected :
       {Expected{"gpt2-mini", 1, {"model.heads=1"}, 7, 16},
        {"llama3-mini", 1, narrow, 8, 12},
        // Each of 4 products rounds its rows forward and dy backward, where the weight is
        // transposed, too. SwiGLU is a kernel by itself.
        {"llama3-mini", 1, in_8_bits, 8 + 1 + 4, 12 + 1 + 4 * 2},
        // The weight is rounded forward as well, and backward instead of being transposed.
        {"llama3-mini", 1, rounded_at_use, 8 + 1 + 4 * 2, 12 + 1 + 4 * 2},
        {"llama3-mini", 1, in_blocks, 8 + 1 + 4 * 2, 12 + 1 + 4 * 2},
        {"qwen3-mini", 1, narrow, 8, 13},
        {"qwen3-moe-mini", 1, experts, 16, 18},
        {"llama4-mini", 2, experts, 40, 49}}) {
    CAPTURE(expected.model);
    const Added added = launches_of_layers(expected.model, expected.layers, expected.widths);
    CHECK(added.forward == expected.forward);
    CHECK(added.backward == expected.backward);
  }
}

TEST_CASE("launches of the optimizer: the gradient norm, the factor that clips it, and AdamW") {
  const StepWork step = step_of("gpt2-mini", 1, {"model.heads=1"});
  for (const char* kernel :
       {"cuda/squares_kernel", "gradient_norm/clip_kernel", "cuda/adamw_kernel"}) {
    INFO(kernel);
    const auto found = step.find({StepPhase::optimizer, kernel});
    REQUIRE(found != step.end());
    CHECK(found->second["launches"] == 1);
  }
}

TEST_CASE("the host launches every kernel of a queued step, and with runtime.graph one graph") {
  ResolvedConfig run = run_of("gpt2-mini", 1, {"model.heads=1"});
  const auto count_of = [](const HostCallCounts& counts, std::string_view kind) {
    const auto found = std::find(kHostCallKinds.begin(), kHostCallKinds.end(), kind);
    return counts.at(static_cast<std::size_t>(found - kHostCallKinds.begin()));
  };
  double launches = 0;
  for (const auto& [key, work] : step_of("gpt2-mini", 1, {"model.heads=1"})) {
    const bool is_launch = key.second != "cudaMemcpyAsync" && key.second != "cudaMemsetAsync";
    if (is_launch) launches += work["launches"];
  }
  const HostCallCounts queued = count_host_calls(run);
  CHECK(static_cast<double>(count_of(queued, "launches")) == launches);
  CHECK(count_of(queued, "graph launches") == 0);
  run.config.runtime.graph = true;
  const HostCallCounts graph = count_host_calls(run);
  INFO(to_string(queued) << "; with a graph " << to_string(graph));
  CHECK(count_of(graph, "launches") == 0);
  CHECK(count_of(graph, "graph launches") == 1);
  CHECK(count_of(graph, "waits") == 1);
  CHECK(count_of(queued, "waits") == 1);
}

TEST_CASE("on one rank a step's events do not grow with the layers") {
  const auto events_of = [](std::int64_t layers) {
    const auto found = std::find(kHostCallKinds.begin(), kHostCallKinds.end(), "events");
    return count_host_calls(run_of("gpt2-mini", layers, {"model.heads=1"}))
        .at(static_cast<std::size_t>(found - kHostCallKinds.begin()));
  };
  CHECK(events_of(1) == events_of(3));
}

}  // namespace tessera
