// Ranks that talk through NCCL: in emulated builds, threads that own an emulated GPU each and a
// stand-in for the library that is stricter than it; on a machine with GPUs, as many ranks as GPUs.
#include "sharding/comm/nccl/nccl.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "runtime/cuda/backend.h"
#include "sharding/comm/nccl/job.h"
#include "sharding/comm/tcp/tcp.h"
#include "sharding/comm/threads/threads.h"
#include "sharding/comm/world.h"
#include "tests/sharding/random_calls.h"
#include "tests/sharding/ranks.h"
#include "tests/support/device.h"
#include "tests/support/local_port.h"
#include "tests/support/progress.h"
#include "tests/support/test_clock.h"
#if defined(TESSERA_EMULATED)
#include "runtime/emulation/toolkit/nccl_faults.h"
#include "runtime/emulation/toolkit/nccl_model.h"
#endif

namespace tessera {

using test::abort_one_after_another;
using test::compute;
using test::Findings;
using test::Floats;
using test::tensor_of;
using Body = std::function<void(Communicator&)>;

namespace {

/// Calls `body` on every rank, all of which have a GPU. `control`: the deadline of the communicator
/// that compares calls.
void run(int ranks, const NcclOptions& options, const Body& body, int ranks_per_node = 0,
         const Deadline& control = test::kSafetyLimit) {
  const auto with_nccl = [&](Communicator& world) { run_with_nccl(world, options, body); };
#if defined(TESSERA_EMULATED)
  emulation::DeviceOptions devices = emulation::device_options();
  devices.devices = ranks;
  const emulation::DeviceOptionsGuard guard(devices);
#else
  ranks = std::min(ranks, cuda::device_count());
#endif
  run_ranks({.ranks = ranks,
             .device = test::device(),
             .threads = 1,
             .deadline = control,
             .communicator = CommunicatorKind::nccl,  // the ranks stand for processes
             .ranks_per_node = ranks_per_node},
            with_nccl);
}

#if defined(TESSERA_EMULATED)
emulation::DeviceOptions with_gpus(int count) {
  emulation::DeviceOptions options = emulation::device_options();
  options.devices = count;
  return options;
}
#endif

/// Whether each of `ranks` ranks can have a GPU of its own. A test about a certain rank needs it.
bool has_gpus([[maybe_unused]] int ranks) {
#if defined(TESSERA_EMULATED)
  return true;
#else
  if (cuda::device_count() >= ranks) return true;
  WARN("skipped: the machine has fewer than " << ranks << " GPUs");
  return false;
#endif
}

void expect(const NcclOptions& options, int ranks, void (*check)(Communicator&, Findings&),
            int ranks_per_node = 0) {
  Findings findings;
  run(
      ranks, options, [&](Communicator& world) { check(world, findings); }, ranks_per_node);
  CHECK(findings.wrong() == std::vector<std::string>{});
}

const NcclOptions kDeterministic = {.deterministic = true, .deadline = test::kSafetyLimit};

constexpr auto kShort = std::chrono::milliseconds(300);

/// Sums as near to the exact one as additions in any order can promise, in f32 and bf16.
void check_any_order(Communicator& group, Findings& findings) {
  constexpr std::int64_t kPart = 50;
  const int n = group.size();
  const auto near = [&](const Floats& sums, std::int64_t first, double roundoff) {
    std::vector<double> exact(sums.size(), 0.0), magnitude(sums.size(), 0.0);
    for (int r = 0; r < n; ++r) {
      const Floats values = test::values_of(r, n * kPart);
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const double value = values[static_cast<std::size_t>(first) + i];
        exact[i] += value;
        magnitude[i] += std::abs(value);
      }
    }
    bool all = true;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      all &= std::abs(sums[i] - exact[i]) <= n * roundoff * magnitude[i];
    }
    return all;
  };
  const Tensor whole = tensor_of(group.rank(), n * kPart);
  const Tensor part = Tensor::empty({kPart}, DType::f32);
  group.reduce_scatter({part}, {whole}, compute());
  findings.expect(near(part.to_vector<float>(), group.rank() * kPart, 0x1p-23), "reduce_scatter");
  const Tensor own = whole.slice(group.rank() * kPart, (group.rank() + 1) * kPart);
  group.reduce_scatter({own}, {whole}, compute());
  findings.expect(own.to_vector<float>() == part.to_vector<float>(), "in place");
  const Tensor everywhere = tensor_of(group.rank(), n * kPart);
  group.all_reduce({everywhere}, compute());
  findings.expect(near(everywhere.to_vector<float>(), 0, 0x1p-23), "all_reduce");
  const Tensor at_root = tensor_of(group.rank(), n * kPart);
  group.reduce({at_root}, n - 1, compute());
  if (group.rank() == n - 1)
    findings.expect(near(at_root.to_vector<float>(), 0, 0x1p-23), "reduce");

  std::vector<bfloat16> narrow;
  for (const float value : test::values_of(group.rank(), kPart)) narrow.emplace_back(value);
  const Tensor sixteen = Tensor::from(narrow, {kPart});
  group.all_reduce({sixteen}, compute());
  Floats sums;
  for (const bfloat16 value : sixteen.to_vector<bfloat16>()) {
    sums.push_back(static_cast<float>(value));
  }
  findings.expect(near(sums, 0, 0x1p-7), "all_reduce of bf16");
}

/// Sums and maxima that NCCL's own floating-point reductions would get wrong.
void check_exact_ones(Communicator& group, Findings& findings) {
  const bool last = group.rank() == group.size() - 1;
  const Tensor x = Tensor::from(Floats{last ? std::nanf("") : 1.0f, 2.0f}, {2});
  group.all_reduce({x}, compute(), "largest", Reduction::maximum);
  findings.expect(std::isnan(x.to_vector<float>()[0]) && x.to_vector<float>()[1] == 2.0f, "NaN");
  const std::int64_t large = (std::int64_t{1} << 60) + 1;
  const Tensor integer = Tensor::from(std::vector<std::int64_t>{large}, {1});
  group.all_reduce({integer}, compute());
  findings.expect(integer.item<std::int64_t>() == group.size() * large, "integers");
  // In bf16 256 + 1 is 256 again.
  const std::vector<bfloat16> values(static_cast<std::size_t>(group.size()),
                                     bfloat16(group.rank() == 0 ? 256.0f : 1.0f));
  const Tensor wide = Tensor::zeros({1}, DType::f32);
  group.reduce_scatter({wide}, {Tensor::from(values, {group.size()})}, compute());
  findings.expect(wide.item<float>() == 255.0f + static_cast<float>(group.size()), "bf16 into f32");
}

}  // namespace

TEST_CASE("nccl: with deterministic sums it passes every check, bit for bit") {
  for (const test::CommunicatorCheck& check : test::kCommunicatorChecks) {
    INFO(check.name);
    for (const int ranks : {1, 2, 3}) expect(kDeterministic, ranks, check.body);
  }
}

TEST_CASE("nccl: random calls, in any order of GPUs, in many small rounds") {
  NcclOptions options = kDeterministic;
  options.staging_bytes = 2048;
  test::for_every_progress(1, [&] { expect(options, 3, test::check_random_calls); });
}

TEST_CASE("nccl: sums inside nodes and across them have the bits of one sum over all ranks") {
  for (const auto& [ranks, per_node] : {std::pair{4, 2}, std::pair{6, 2}, std::pair{4, 3}}) {
    CAPTURE(ranks, per_node);
    for (const auto check : {test::check_sums, test::check_odd_counts, test::check_split}) {
      expect(kDeterministic, ranks, check, per_node);
    }
    NcclOptions small = kDeterministic;
    small.staging_bytes = 2048;
    expect(small, ranks, test::check_random_calls, per_node);
  }
}

#if defined(TESSERA_EMULATED)
TEST_CASE("nccl: ranks without MPI, which find each other by TCP, make every check") {
  constexpr int kRanks = 4;
  emulation::DeviceOptions devices = emulation::device_options();
  devices.devices = kRanks;
  const emulation::DeviceOptionsGuard guard(devices);
  const int port = test::free_port();
  Findings findings;
  const auto rank_of = [&](int rank) {
    const TcpRank own = {
        .host = "localhost", .port = port, .rank = rank, .ranks = kRanks, .rank_on_machine = rank};
    const auto body = [&](Communicator& world) {
      for (const test::CommunicatorCheck& check : test::kCommunicatorChecks) {
        check.body(world, findings);
      }
      test::check_random_calls(world, findings);
      findings.expect(world.rank() == rank && world.ranks_per_node() == kRanks, "place");
    };
    run_tcp_rank(own, {.device = test::device(), .threads = 1},
                 [&](Communicator& control) { run_with_nccl(control, kDeterministic, body); });
  };
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        rank_of(rank);
      } catch (const std::exception& error) {
        findings.expect(false, error.what());
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  CHECK(findings.wrong() == std::vector<std::string>{});
}
#endif

TEST_CASE("nccl: its own sums are right to rounding, and others go through the tree") {
  for (const int ranks : {2, 4}) {
    expect({}, ranks, check_any_order);
    expect({}, ranks, check_exact_ones);
    expect({}, ranks, test::check_moves);
    expect({}, ranks, test::check_all_gather);
  }
}

#if defined(TESSERA_EMULATED)
TEST_CASE("nccl: it forms its own sums unless they must be deterministic") {
  Findings findings;  // the stand-in adds in no tree
  run(4, {}, [&](Communicator& world) { test::check_sums(world, findings); });
  CHECK_FALSE(findings.wrong().empty());
}
#endif

TEST_CASE("nccl: a rank that raises ends the others, and the first failure is reported") {
  if (!has_gpus(3)) return;
  REQUIRE_THROWS_WITH(run(3, kDeterministic,
                          [](Communicator& group) {
                            if (group.rank() == 1) throw Error("out of patience");
                            group.barrier(compute());
                          }),
                      "rank 1: out of patience");
}

TEST_CASE("nccl: ranks that disagree are both named") {
  if (!has_gpus(3)) return;
  REQUIRE_THROWS_WITH(run(3, kDeterministic,
                          [](Communicator& group) {
                            const Tensor x = tensor_of(0, group.rank() == 2 ? 8 : 4);
                            group.all_reduce({x}, compute(), "h.0");
                          }),
                      Catch::Contains("all_reduce of 16 bytes in 1 tensor, for h.0, rank 2 makes"));
}

TEST_CASE("nccl: a missing rank is named when the deadline has passed") {
  if (!has_gpus(3)) return;
  test::TestClock clock;
  const Deadline deadline(kShort, clock);
  std::atomic<int> here = 0, gone = 0;
  const auto body = [&](Communicator& group) {
    if (group.rank() == 1) {
      test::wait_for("the others are here", [&] { return here == 2; });
      clock.pass_when_waiting(2, kShort);
      test::wait_for("the others have given up", [&] { return gone == 2; });
      return;
    }
    ++here;
    try {
      group.barrier(compute());
    } catch (const Error&) {
      ++gone;
      throw;
    }
  };
  REQUIRE_THROWS_WITH(run(3, {.deadline = deadline}, body, 0, deadline),
                      Catch::Contains("waited 300 ms") && Catch::Contains("for rank 1"));
}

TEST_CASE("nccl: two ranks on one GPU are an error") {
  const auto with_nccl = [](Communicator& control) {
    run_with_nccl(control, {}, [](Communicator&) {});
  };
  REQUIRE_THROWS_WITH(test::on_ranks(2, with_nccl), Catch::Contains("NCCL: connecting"));
}

#if defined(TESSERA_EMULATED)

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
  CHECK_THROWS_WITH(run(2, {.deadline = {kShort, clock}}, body),
                    Catch::Matches("rank [01]: call 0, all_reduce of 16 bytes in 1 tensor, for "
                                   "h.0, was queued 300 ms ago and has not ended on the GPU.*") &&
                        Catch::Contains("sharding.timeout"));
}

TEST_CASE("nccl: one communicator is connected, and the others share its channels and buffers") {
  const std::uint64_t before = emulation::nccl_resources();
  run(4, kDeterministic, [](Communicator& world) { split_twice(world); });
  CHECK(emulation::nccl_resources() - before == 4);  // one on each rank
}

TEST_CASE("nccl: a split waits for the calls before it, of any stream") {
  const auto body = [](Communicator& world) {
    const Tensor x = tensor_of(world.rank(), 4);
    compute().synchronize();
    world.all_reduce({x}, context().side_stream("side"));
    world.split(0)->barrier(compute());
  };
  test::for_every_progress(2, [&] { CHECK_NOTHROW(run(2, kDeterministic, body)); });
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
  CHECK_THROWS_WITH(run(2, kDeterministic, body), Catch::Contains("the disk is full"));
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
  CHECK_THROWS_WITH(run(2, {.deadline = {kShort, clock}}, body),
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
  CHECK_NOTHROW(run(2, {.deadline = {kShort, clock}}, body));
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
  CHECK_THROWS_WITH(run(2, kDeterministic, body), Catch::Contains("the disk is full"));
  CHECK(refused == 2);
}

TEST_CASE("nccl: ranks that abort at the same time all give the reason of the first") {
  std::atomic<bool> first_has_aborted = false;
  Findings findings;
  const auto body = [&](Communicator& world) {
    abort_one_after_another(world, first_has_aborted, findings);
  };
  CHECK_THROWS_WITH(run(2, kDeterministic, body), "the first reason");
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
  CHECK_THROWS_WITH(run(2, {.deadline = {kShort, clock}}, body),
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
      run(2, kDeterministic, [&](Communicator& world) { read_a_sum(world, break_links); }),
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

TEST_CASE("nccl: maxima need no tree, so no sources are collected, and the ranks have no limit") {
  for (const bool deterministic : {false, true}) {
    Findings findings;
    const auto workspace_of = [](Communicator& world, Reduction reduction) {
      const Tensor x = tensor_of(0, 4096);
      context().allocator().reset_peaks();
      world.all_reduce({x}, compute(), "x", reduction);
      return context().allocator().account()[Category::workspace].peak;
    };
    run(3, {.deterministic = deterministic}, [&](Communicator& world) {
      findings.expect(workspace_of(world, Reduction::maximum) == 0, "maximum");
      findings.expect((workspace_of(world, Reduction::sum) > 0) == deterministic, "sum");
    });
    CHECK(findings.wrong() == std::vector<std::string>{});
  }
}

TEST_CASE("nccl: ranks that disagree after two steps are both named at the step's end") {
  const auto body = [](Communicator& world) {
    for (int step = 0; step < 3; ++step) {
      const Tensor x = tensor_of(world.rank(), 4);
      const bool other = step == 2 && world.rank() == 1;
      world.all_reduce({x}, compute(), other ? "h.2" : "h.1");
      world.next_step(compute());
    }
  };
  const NcclOptions options = {.deadline = test::kSafetyLimit,
                               .check_collectives = CheckCollectives::first_steps};
  CHECK_THROWS_WITH(
      run(2, options, body),
      Catch::Contains("rank 0 makes call 2, all_reduce of 16 bytes in 1 tensor, for h.1, rank 1 "
                      "makes call 2, all_reduce of 16 bytes in 1 tensor, for h.2"));
}

TEST_CASE("run_world: ranks with a GPU each should be processes, and NCCL takes no threads") {
  const emulation::DeviceOptionsGuard guard(with_gpus(4));
  const emulation::NcclModelGuard model({.takes_threads = false});  // as on GPUs
  const auto should = [](int ranks, CommunicatorKind kind, const Device& device) {
    return are_processes({.ranks = ranks, .device = device, .communicator = kind});
  };
  const Device gpu = test::device();
  CHECK(should(4, CommunicatorKind::automatic, gpu));
  CHECK(should(2, CommunicatorKind::nccl, gpu));
  CHECK_FALSE(should(4, CommunicatorKind::threads, gpu));
  CHECK_FALSE(should(5, CommunicatorKind::automatic, gpu));  // two share a GPU
  CHECK_FALSE(should(1, CommunicatorKind::automatic, gpu));
  CHECK_FALSE(should(4, CommunicatorKind::automatic, Device{}));
  CHECK_THROWS_WITH(
      run_world({.ranks = 4, .device = gpu, .threads = 1, .communicator = CommunicatorKind::nccl},
                [](Communicator&) {}),
      Catch::Contains("wait for each other's GPUs for ever") &&
          Catch::Contains("'tessera launch --ranks 4'"));
}

TEST_CASE("run_world: a rank that is a thread may allocate while another is in a collective") {
  const emulation::DeviceOptionsGuard guard(with_gpus(2));
  std::atomic<bool> ready = false, looks = false;
  Floats sums;
  run_world({.ranks = 2, .device = test::device(), .threads = 1}, [&](Communicator& world) {
    const Tensor x = tensor_of(world.rank(), 4);
    for (int step = 0; step < 2; ++step) world.next_step(compute());  // ranks compare calls no more
    compute().synchronize();
    if (world.rank() == 0) {
      ready = true;
      test::wait_for("rank 1 looks", [&] { return looks.load(); });
    } else {
      test::wait_for("rank 0 is ready", [&] { return ready.load(); });
      const std::uint64_t calls = emulation::host_calls();
      looks = true;
      test::wait_for("rank 0 is in its call", [&] { return emulation::host_calls() > calls; });
      Tensor::empty({1 << 22}, DType::f32);
    }
    world.all_reduce({x}, compute());
    if (world.rank() == 1) sums = x.to_vector<float>();
  });
  CHECK(sums.size() == 4);
}

#endif

TEST_CASE("run_world takes the communicator that is asked for, where it can") {
  const auto kinds = [](CommunicatorKind kind, const Device& device) {
    std::string trace;
    run_world({.ranks = 1, .device = device, .threads = 1, .communicator = kind},
              [&](Communicator& world) {
                const Tensor x = tensor_of(0, 3);
                world.all_reduce({x}, compute());
                trace = x.to_vector<float>() == test::values_of(0, 3) ? "ran" : "wrong";
              });
    return trace;
  };
  CHECK(kinds(CommunicatorKind::nccl, test::device()) == "ran");
  CHECK(kinds(CommunicatorKind::automatic, test::device()) == "ran");
  CHECK(kinds(CommunicatorKind::threads, test::device()) == "ran");
  CHECK_THROWS_WITH(kinds(CommunicatorKind::mpi, test::device()), Catch::Contains("mpirun -np"));
  CHECK_THROWS_WITH(kinds(CommunicatorKind::nccl, Device{}), Catch::Contains("on GPUs"));
  CHECK(enum_from_name<CommunicatorKind>("nccl") == CommunicatorKind::nccl);
  CHECK(enum_from_name<CommunicatorKind>("auto") == CommunicatorKind::automatic);
  CHECK_THROWS_WITH(enum_from_name<CommunicatorKind>("gloo"),
                    Catch::Contains("auto, threads, mpi or nccl"));
}

}  // namespace tessera
