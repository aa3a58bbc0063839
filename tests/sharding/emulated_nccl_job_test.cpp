// How the NCCL communicators of a rank are made, are split, and end.
#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "runtime/emulation/toolkit/nccl_faults.h"
#include "runtime/emulation/toolkit/nccl_model.h"
#include "sharding/comm/nccl/job.h"
#include "tests/sharding/nccl_ranks.h"

namespace tessera {

using test::abort_one_after_another;
using test::compute;
using test::Findings;
using test::kDeterministic;
using test::kShort;
using test::run_nccl;
using test::tensor_of;
using Body = std::function<void(Communicator&)>;

namespace {

/// Ends a wait that the program does not end by itself, so that its test fails instead of hanging.
class Rescue {
 public:
  explicit Rescue(Communicator& world)
      : thread_([this, &world] {
          std::unique_lock lock(mutex_);
          const auto over = [this] { return over_; };
          if (!changed_.wait_for(lock, test::kSafetyLimit, over)) world.abort("rescued");
        }) {}
  ~Rescue() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Rescue(const Rescue&) = delete;
  Rescue& operator=(const Rescue&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

/// Splits the world in two halves, and each in two again.
std::vector<std::unique_ptr<Communicator>> split_twice(Communicator& world) {
  std::vector<std::unique_ptr<Communicator>> groups;
  groups.push_back(world.split(world.rank() / 2));
  groups.push_back(groups.back()->split(groups.back()->rank()));
  return groups;
}

/// Reads the sum of an all_reduce on the host, and asks whether it may be trusted. `meanwhile` runs
/// when the all_reduce has been queued.
void read_a_sum(
    Communicator& world, const Body& meanwhile = [](Communicator&) {}) {
  const Rescue rescue(world);
  const Tensor x = tensor_of(world.rank(), 4);
  world.all_reduce({x}, compute(), "h.0");
  meanwhile(world);
  x.to_vector<float>();
  world.raise_if_aborted();
  throw Error("the sum was trusted");
}

}  // namespace

TEST_CASE("nccl: a call that never ends on the GPU is named when the deadline has passed") {
  const emulation::NcclFaultsGuard guard({.never_ends = true});
  test::TestClock clock;
  std::atomic<int> queued = 0;
  const auto let_time_pass = [&](Communicator& world) {
    if (++queued == world.size()) clock.pass(kShort + std::chrono::milliseconds(1));
  };
  const auto body = [&](Communicator& world) { read_a_sum(world, let_time_pass); };
  CHECK_THROWS_WITH(run_nccl(2, {.deadline = {kShort, clock}}, body),
                    Catch::Matches("rank [01]: call 0, all_reduce of 16 bytes in 1 tensor, for "
                                   "h.0, was queued 300 ms ago and has not ended on the GPU.*") &&
                        Catch::Contains("sharding.timeout"));
}

TEST_CASE("nccl: one communicator is connected, and the others share its channels and buffers") {
  const std::uint64_t before = emulation::nccl_resources();
  run_nccl(4, kDeterministic, [](Communicator& world) { split_twice(world); });
  CHECK(emulation::nccl_resources() - before == 4);  // one on each rank
}

TEST_CASE("nccl: a split waits for the calls before it, of any stream") {
  const auto body = [](Communicator& world) {
    const Tensor x = tensor_of(world.rank(), 4);
    compute().synchronize();
    world.all_reduce({x}, context().side_stream("side"));
    world.split(0)->barrier(compute());
  };
  test::for_every_progress(2, [&] { CHECK_NOTHROW(run_nccl(2, kDeterministic, body)); });
}

TEST_CASE("nccl: an abort ends the calls of a communicator that was split off") {
  const emulation::NcclFaultsGuard guard({});
  const auto body = [](Communicator& world) {
    const auto half = world.split(0);
    emulation::set_nccl_faults({.never_ends = true});
    read_a_sum(*half, [](Communicator& group) {
      if (group.rank() == 1) group.abort("the disk is full");
    });
  };
  CHECK_THROWS_WITH(run_nccl(2, kDeterministic, body), Catch::Contains("the disk is full"));
}

TEST_CASE("nccl: ranks that never split end the run when the deadline has passed") {
  test::TestClock clock;
  std::atomic<int> here = 0;
  const emulation::NcclFaultsGuard guard({});
  const auto body = [&](Communicator& world) {
    if (++here == world.size()) emulation::set_nccl_faults({.never_queued = true});
    test::wait_for("calls are queued no more", [&] { return here == world.size(); });
    clock.tick();
    world.split(0);
  };
  CHECK_THROWS_WITH(run_nccl(2, {.deadline = {kShort, clock}}, body),
                    Catch::Contains("waited 300 ms in splitting a communicator for other ranks"));
}

TEST_CASE("nccl: calls that have ended do not count as overdue, however long the run takes") {
  test::TestClock clock;
  std::atomic<int> ended = 0;
  std::atomic<bool> passed = false;
  const auto body = [&](Communicator& world) {
    world.barrier(compute());
    compute().synchronize();
    if (++ended == world.size()) {
      clock.pass(std::chrono::hours(1));
      passed = true;
    }
    test::wait_for("both calls have ended and time has passed", [&] { return passed.load(); });
    clock.wait_for_questions(3);  // so one of the two watchers has looked and gone on
    world.raise_if_aborted();
  };
  CHECK_NOTHROW(run_nccl(2, {.deadline = {kShort, clock}}, body));
}

TEST_CASE("nccl: results that an abort has cut short are refused on every rank") {
  const emulation::NcclFaultsGuard guard({.never_ends = true});
  std::atomic<int> refused = 0;
  const auto body = [&](Communicator& world) {
    std::thread disk;
    if (world.rank() == 1) {
      disk = std::thread([&] {
        test::wait_for("both ranks wait for the sum",
                       [] { return emulation::waiting_host_threads() == 2; });
        world.abort("rank 1: the disk is full");
      });
    }
    try {
      read_a_sum(world);
    } catch (const Error& error) {
      if (std::string(error.what()).find("the disk is full") != std::string::npos) ++refused;
    }
    if (disk.joinable()) disk.join();
  };
  CHECK_THROWS_WITH(run_nccl(2, kDeterministic, body), Catch::Contains("the disk is full"));
  CHECK(refused == 2);
}

TEST_CASE("nccl: ranks that abort at the same time all give the reason of the first") {
  std::atomic<bool> first_has_aborted = false;
  Findings findings;
  const auto body = [&](Communicator& world) {
    abort_one_after_another(world, first_has_aborted, findings);
  };
  CHECK_THROWS_WITH(run_nccl(2, kDeterministic, body), "the first reason");
  CHECK(findings.wrong() == std::vector<std::string>{});
}

TEST_CASE("nccl: ranks that never reach NCCL end the run when the deadline has passed") {
  const emulation::NcclFaultsGuard guard({.never_queued = true});
  test::TestClock clock;
  std::atomic<int> connected = 0;
  const auto body = [&](Communicator& world) {
    if (++connected == world.size()) clock.tick();
    read_a_sum(world);
  };
  CHECK_THROWS_WITH(run_nccl(2, {.deadline = {kShort, clock}}, body),
                    Catch::Matches("rank [01]: waited 300 ms in call 0, all_reduce of 16 bytes in "
                                   "1 tensor, for h.0 for other ranks to reach NCCL"));
}

TEST_CASE("nccl: an error that NCCL reports later, of a broken link, ends the calls under way") {
  const emulation::NcclFaultsGuard guard({.never_ends = true});
  std::atomic<int> queued = 0;
  const auto break_links = [&](Communicator& world) {
    ++queued;
    if (world.rank() != 1) return;
    while (queued < world.size())
      std::this_thread::yield();  // or a rank would hear of it as it queues
    emulation::break_nccl_links("the cable is out");
  };
  CHECK_THROWS_WITH(
      run_nccl(2, kDeterministic, [&](Communicator& world) { read_a_sum(world, break_links); }),
      Catch::Matches("rank [01]: NCCL: .*the cable is out"));
}

TEST_CASE("nccl: an exception between two calls of a group leaves no group open") {
  test::on_ranks(1, [](Communicator& world) {
    NcclJob job(world, test::kSafetyLimit, kNcclCtas);
    const ncclComm_t comm = job.connect();
    const auto describe = [] { return std::string("a call"); };
    CHECK_THROWS_WITH(
        job.queue(comm, describe, [](const NcclJob::Take&) { throw Error("out of memory"); }),
        "out of memory");
    CHECK(ncclGroupEnd() == ncclInvalidUsage);  // no group is open
  });
}

}  // namespace tessera
