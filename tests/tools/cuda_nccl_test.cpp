// Training through NCCL: the configuration's keys reach it, and an abort leaves no trusted result.
#include <catch2/catch.hpp>
#include <thread>

#include "runtime/device.h"
#include "sharding/comm/nccl/nccl.h"
#include "sharding/comm/threads/threads.h"
#include "tests/support/device.h"
#include "tests/tools/tiny_run.h"
#include "tools/bench/workload.h"
#include "tools/train/resolve.h"
#include "tools/train/session.h"
#include "tools/train/trainer.h"
#if defined(TESSERA_EMULATED)
#include "runtime/emulation/toolkit/emulated_device.h"
#include "runtime/emulation/toolkit/nccl_faults.h"

namespace tessera {

using test::metrics_of;
using test::TemporaryDirectory;

namespace {

/// Emulated GPUs for the scope, one per rank.
class Gpus {
 public:
  explicit Gpus(int count) : guard_(with_count(count)) {}

 private:
  static emulation::DeviceOptions with_count(int count) {
    emulation::DeviceOptions options = emulation::device_options();
    options.devices = count;
    return options;
  }
  emulation::DeviceOptionsGuard guard_;
};

}  // namespace

TEST_CASE("sharding.deterministic gives a run through NCCL the bits of a run of threads") {
  constexpr int kRanks = 4;
  const Gpus gpus(kRanks);
  const TemporaryDirectory folder;
  Config config = test::tiny_run(folder);
  config.model.context = config.data.sequence_length = 8;
  config.train.steps = 4;
  config.train.eval_every = 0;
  config.runtime.device = Device{DeviceType::cuda, 0};
  config.runtime.ranks = kRanks;
  config.runtime.threads = 1;
  config.sharding.strategy = StrategyKind::fsdp;
  const auto losses = [&](CommunicatorKind kind, bool deterministic, const std::string& name) {
    config.sharding.communicator = kind;
    config.sharding.deterministic = deterministic;
    config.train.dir = folder / name;
    train(config);
    std::vector<std::string> found;
    for (const auto& line : metrics_of(config.train.dir)) {
      found.push_back(line["loss"].dump() + " " + line["gradient_norm"].dump());
    }
    return found;
  };
  const auto threads = losses(CommunicatorKind::threads, false, "threads");
  CHECK(losses(CommunicatorKind::nccl, true, "deterministic") == threads);
  // The stand-in adds in an order of its own.
  CHECK(losses(CommunicatorKind::nccl, false, "nccl") != threads);
}

TEST_CASE("a step that an abort has cut short raises on every rank") {
  const Gpus gpus(2);
  Config config = workload("tiny", {});
  config.sharding.strategy = StrategyKind::ddp;
  std::atomic<int> trusted = 0;
  const auto body = [&](Communicator& world) {
    TrainingSession session(resolve(config), world);
    const auto source = random_tokens(config.data, session.model().shape().vocab_size);
    session.step(1, source);
    world.barrier(context().compute_stream());
    context().compute_stream().synchronize();
    std::thread disk;
    if (world.rank() == 1) {
      emulation::set_nccl_faults({.never_ends = true});
      disk = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        world.abort("rank 1: the disk is full");
      });
    }
    try {
      session.step(2, source);
      ++trusted;
    } catch (const Error&) {
      if (disk.joinable()) disk.join();
      throw;
    }
    if (disk.joinable()) disk.join();
  };
  const emulation::NcclFaultsGuard guard({});
  CHECK_THROWS_WITH(run_ranks({.ranks = 2, .device = test::device(), .threads = 1},
                              [&](Communicator& control) { run_with_nccl(control, {}, body); }),
                    Catch::Contains("the disk is full"));
  CHECK(trusted == 0);
}

}  // namespace tessera
#endif
