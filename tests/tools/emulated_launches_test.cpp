// The launches of a layer, as numbers: one more kernel in a block turns this red without a GPU.
#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "runtime/context.h"
#include "runtime/emulation/toolkit/emulated_device.h"
#include "sharding/comm/stream.h"
#include "sharding/comm/threads/threads.h"
#include "tests/support/device.h"
#include "tools/bench/counts/kernel_label.h"
#include "tools/bench/workload.h"
#include "tools/config/sharding_options.h"
#include "tools/train/session.h"

namespace tessera {
namespace {

struct Launches {
  int forward = 0, backward = 0, optimizer = 0;
  std::map<std::string, int> by_name;
};

/// The launches of one step, in 16 bits and with one sequence.
Launches launches_of_step(const std::string& model, int layers, const std::string& sizes) {
  emulation::DeviceOptions options = emulation::device_options();
  options.progress = emulation::Progress::eager;
  const emulation::DeviceOptionsGuard guard(options);
  std::vector<std::string> settings = {"runtime.compute_dtype=bf16", "data.batch_size=1",
                                       "data.sequence_length=64", "model.vocab_size=96",
                                       "model.layers=" + std::to_string(layers)};
  for (std::size_t begin = 0; begin < sizes.size();) {
    const std::size_t end = std::min(sizes.find(' ', begin), sizes.size());
    settings.push_back("model." + sizes.substr(begin, end - begin));
    begin = end + 1;
  }
  const ResolvedConfig run = resolve(workload(model, settings));
  std::vector<emulation::LaunchRecord> list;
  run_ranks({.device = test::device(), .threads = 2}, [&](Communicator& world) {
    TrainingSession session(run, world);
    context().compute_stream().synchronize();
    emulation::start_launch_list();
    session.step(1, random_tokens(run.config.data, 96));
    communication_stream().synchronize();
    context().compute_stream().synchronize();
    list = emulation::take_launch_list();
  });
  Launches launches;
  int* const counts[] = {&launches.forward, &launches.backward, &launches.optimizer};
  StepPhase phase = StepPhase::forward;
  for (const emulation::LaunchRecord& launch : list) {
    phase = next_phase(phase, launch.file);
    ++*counts[static_cast<int>(phase)];
    ++launches.by_name[kernel_label(launch.kernel, launch.file)];
  }
  return launches;
}

struct PerLayer {
  int forward, backward;
};

PerLayer launches_of_layer(const std::string& model, const std::string& sizes) {
  const Launches one = launches_of_step(model, 1, sizes), two = launches_of_step(model, 2, sizes);
  for (const auto& [name, count] : two.by_name) {
    const auto found = one.by_name.find(name);
    const int more = count - (found == one.by_name.end() ? 0 : found->second);
    if (more != 0) UNSCOPED_INFO(model << ", a layer more: " << name << " " << more);
  }
  return {two.forward - one.forward, two.backward - one.backward};
}

}  // namespace

TEST_CASE("launches of a layer: Llama") {
  const PerLayer layer =
      launches_of_layer("llama3.2-1b", "heads=2 kv_heads=1 head_size=64 width=128 mlp_width=128");
  CHECK(layer.forward == 14);
  CHECK(layer.backward == 27);
}

TEST_CASE("launches of a layer: GPT-2") {
  const PerLayer layer = launches_of_layer("gpt2", "heads=1 width=64");
  CHECK(layer.forward == 8);
  CHECK(layer.backward == 15);
}

}  // namespace tessera
