// Training through NCCL: the configuration's keys reach it, and an abort leaves no trusted result.
#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <thread>

#include "models/hugging_face.h"
#include "runtime/device.h"
#include "sharding/comm/nccl/nccl.h"
#include "sharding/comm/threads/threads.h"
#include "tests/support/device.h"
#include "tests/support/waiting.h"
#include "tests/tools/tiny_run.h"
#include "tools/measure/workload.h"
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
    const Gpus gpus(
        kRanks);  // new ones, which ranks that are threads have not linked to each other
    config.sharding.communicator = kind;
    config.sharding.deterministic = deterministic;
    config.train.dir = folder / name;
    train(config);
    return test::results_of(config.train.dir);
  };
  const auto threads = losses(CommunicatorKind::threads, false, "threads");
  CHECK(losses(CommunicatorKind::nccl, true, "deterministic") == threads);
  config.sharding.nccl_windows = true;
  CHECK(losses(CommunicatorKind::nccl, true, "windows") == threads);
  CHECK_THROWS_WITH(losses(CommunicatorKind::threads, true, "refused"),
                    Catch::StartsWith("sharding.nccl_windows: these ranks do not exchange"));
  config.sharding.nccl_windows = false;
  // The stand-in adds in an order of its own.
  CHECK(losses(CommunicatorKind::nccl, false, "nccl") != threads);
}

namespace {

constexpr const char* kReason = "rank 1: the disk is full";

/// Trains one step by ddp on two ranks, then runs `body`, and expects that an abort ends the run.
void expect_abort(
    const std::function<void(TrainingSession&, const BatchSource&, Communicator&)>& body) {
  const Gpus gpus(2);
  Config config = workload("tiny", {});
  config.sharding.strategy = StrategyKind::ddp;
  const auto with_session = [&](Communicator& world) {
    TrainingSession session(resolve(config), world);
    const auto source = random_tokens(config.data, session.model().shape().vocab_size);
    session.step(1, source);
    world.barrier(context().compute_stream());
    context().compute_stream().synchronize();
    body(session, source, world);
  };
  const emulation::NcclFaultsGuard guard({});
  CHECK_THROWS_WITH(
      run_ranks({.ranks = 2,
                 .device = test::device(),
                 .threads = 1,
                 .communicator = CommunicatorKind::nccl},
                [&](Communicator& control) { run_with_nccl(control, {}, with_session); }),
      Catch::Contains(kReason));
}

/// Rank 1 aborts while `results` waits for a collective that never ends. Returns how many ranks
/// trusted the results.
int count_trusted(const std::function<void(TrainingSession&, const BatchSource&)>& results) {
  std::atomic<int> trusted = 0;
  expect_abort([&](TrainingSession& session, const BatchSource& source, Communicator& world) {
    std::thread disk;
    if (world.rank() == 1) {
      emulation::set_nccl_faults({.never_ends = true});
      disk = std::thread([&] {
        test::wait_for("both ranks wait for results",
                       [] { return emulation::waiting_host_threads() == 2; });
        world.abort(kReason);
      });
    }
    try {
      results(session, source);
      ++trusted;
    } catch (const Error&) {
      if (disk.joinable()) disk.join();
      throw;
    }
    if (disk.joinable()) disk.join();
  });
  return trusted;
}

}  // namespace

TEST_CASE("a step that an abort has cut short raises on every rank") {
  CHECK(count_trusted([](TrainingSession& session, const BatchSource& source) {
          session.step(2, source);
        }) == 0);
}

TEST_CASE("an evaluation that an abort has cut short raises on every rank") {
  CHECK(count_trusted([](TrainingSession& session, const BatchSource& source) {
          session.evaluate(2, source);
        }) == 0);
}

TEST_CASE("after an abort no model is saved, though saving what is whole communicates nothing") {
  const TemporaryDirectory folder;
  std::atomic<int> saved = 0;
  expect_abort([&](TrainingSession& session, const BatchSource&, Communicator& world) {
    if (world.rank() == 1) world.abort(kReason);
    while (!world.aborted()) std::this_thread::yield();
    save_pretrained(folder / "model", session.model(), session.strategy());
    ++saved;
  });
  CHECK(saved == 0);
  CHECK_FALSE(std::filesystem::exists(folder / "model/model.safetensors"));
}

}  // namespace tessera
#endif
