// The collectives of ranks that are threads: results, order of sums, bytes, overlap and faults.
#include <sys/resource.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>

#include "sharding/comm/threads/rendezvous.h"
#include "sharding/comm/threads/threads.h"
#include "sharding/comm/world.h"
#include "tests/sharding/communicator_checks.h"
#include "tests/sharding/random_calls.h"
#include "tests/sharding/ranks.h"
#include "tests/support/child.h"
#include "tests/support/progress.h"
#include "tests/support/rank.h"
#include "tests/support/test_clock.h"

namespace tessera {

using test::compute;
using test::Findings;
using test::Floats;
using test::summed;
using test::tensor_of;

namespace {

void run(const std::vector<int>& sizes, void (*check)(Communicator&, Findings&)) {
  for (const int ranks : sizes) {
    INFO(ranks << " ranks");
    Findings findings;
    test::on_ranks(ranks, [&](Communicator& communicator) { check(communicator, findings); });
    CHECK(findings.wrong() == std::vector<std::string>{});
  }
}

// (The emulated GPU is slow.)
const std::vector<int> kRanks =
    test::kOnGpu ? std::vector{1, 2, 3, 4} : std::vector{1, 2, 3, 4, 6, 8};

}  // namespace

TEST_CASE("threads pass every check of a communicator") {
  for (const test::CommunicatorCheck& check : test::kCommunicatorChecks) {
    INFO(check.name);
    const bool is_slow = check.name == std::string("large and mixed");
    run(is_slow ? std::vector{1, 2, 3} : kRanks, check.body);
  }
}

TEST_CASE("random calls give every rank the results that it computes alone") {
  run(kRanks, test::check_random_calls);
}

TEST_CASE("results are the same whenever GPUs run the queued work, and in any order of GPUs") {
  test::for_every_progress(2, [] {
    for (const test::CommunicatorCheck& check : test::kCommunicatorChecks) {
      if (check.name == std::string("large and mixed")) continue;
      INFO(check.name);
      run({3}, check.body);
    }
  });
}

TEST_CASE("the time in calls includes that of waiting for other ranks", "[cpu]") {
  /// Measures how long a rank waits in a call.
  struct Stopwatch final : DeadlineClock {
    bool wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, TimePoint end,
              const std::function<bool()>& done) override {
      const TimePoint begin = now();
      waits = true;
      const bool answer = DeadlineClock::wait(changed, lock, end, done);
      waited = now() - begin;
      return answer;
    }
    std::atomic<bool> waits = false;
    std::chrono::duration<double, std::milli> waited{};
  };
  Stopwatch clock;
  double busy_ms = 0.0;
  run_ranks({.ranks = 2, .threads = 1, .deadline = {test::kSafetyLimit, clock}},
            [&](Communicator& world) {
              if (world.rank() == 0) {
                test::wait_for("rank 1 waits", [&] { return clock.waits.load(); });
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
              }
              world.barrier(compute());
              if (world.rank() == 1) busy_ms = world.busy_ms();
            });
  CHECK(clock.waited.count() >= 20.0);
  CHECK(busy_ms >= clock.waited.count());
}

TEST_CASE("a rank that raises ends the others, and the first failure is reported") {
  for (const int n : {2, 4}) {
    const auto body = [](Communicator& group) {
      if (group.rank() == 1) throw Error("out of patience");
      group.barrier(compute());
    };
    REQUIRE_THROWS_WITH(test::on_ranks(n, body), "rank 1: out of patience");
  }
}

TEST_CASE("ranks that disagree are both named") {
  const auto fails_with = [](const std::function<void(Communicator&)>& body,
                             const std::string& message) {
    REQUIRE_THROWS_WITH(test::on_ranks(3, body), Catch::Contains(message));
  };
  fails_with(
      [](Communicator& group) {
        const Tensor x = tensor_of(group.rank(), group.rank() == 2 ? 8 : 4);
        group.all_reduce({x}, compute(), "h.0");
      },
      "rank 0 makes call 0, all_reduce of 16 bytes in 1 tensor, for h.0, rank 2 makes call 0, "
      "all_reduce of 32 bytes in 1 tensor, for h.0");
  fails_with(
      [](Communicator& group) {
        const Tensor x = tensor_of(group.rank(), 3);
        if (group.rank() == 1) {
          group.broadcast({x}, 0, compute());
        } else {
          group.all_reduce({x}, compute());
        }
      },
      "rank 1 makes call 0, broadcast");
  fails_with(
      [](Communicator& group) {
        group.barrier(compute());
        group.broadcast({tensor_of(0, 3)}, group.rank() == 2 ? 1 : 0, compute());
      },
      "ranks disagree: rank 0 makes call 1, broadcast");
  // Rank 2 expects one element more of rank 1 than that one sends.
  fails_with(
      [](Communicator& group) {
        const std::int64_t more = group.rank() == 2 ? 1 : 0;
        group.all_to_all_parts(Parts{tensor_of(0, 6 + more), {2, 2 + more, 2}},
                               Parts{tensor_of(0, 6), {2, 2, 2}}, compute(), "rows");
      },
      "ranks disagree: rank 1 sends 2 elements to rank 2, which expects 3, in call 0, all_to_all");
}

TEST_CASE("ranks compare everything about a call but the color of a split") {
  const test::Rank rank;
  const Tensor f32 = Tensor::zeros({4}, DType::f32);
  const Tensor bf16 = Tensor::zeros({4}, DType::bf16);
  const Tensor longer = Tensor::zeros({5}, DType::f32);
  const Call call{.collective = Collective::reduce, .outputs = {f32}, .inputs = {bf16}};
  const auto differs = [&](const std::function<void(Call&)>& change) {
    Call changed = call;
    change(changed);
    return fingerprint(changed) != fingerprint(call);
  };
  CHECK_FALSE(differs([&](Call& same) { same.outputs = {f32.clone().reshape({2, 2})}; }));
  CHECK(differs([](Call& other) { other.collective = Collective::broadcast; }));
  CHECK(differs([](Call& other) { other.root = 1; }));
  CHECK(differs([](Call& other) { other.reduction = Reduction::maximum; }));
  CHECK(differs([](Call& other) { other.label = "h.0"; }));
  CHECK(differs([&](Call& other) { other.outputs = {longer}; }));
  CHECK(differs([&](Call& other) { other.outputs = {bf16}; }));
  CHECK(differs([&](Call& other) { other.outputs = {f32, f32}; }));
  CHECK(differs([&](Call& other) { other.inputs = {f32}; }));
  CHECK(differs([](Call& other) { other.number = 8; }));

  // Unequal parts may have another size on each rank.
  const Call unequal{.collective = Collective::all_to_all,
                     .outputs = {f32},
                     .inputs = {longer},
                     .sent_counts = {5},
                     .received_counts = {4}};
  Call other = unequal;
  other.outputs = {longer}, other.received_counts = {5};
  CHECK(fingerprint(other) == fingerprint(unequal));
  other.outputs = {bf16};
  CHECK(fingerprint(other) != fingerprint(unequal));
  other = unequal;
  other.sent_counts.clear();
  CHECK(fingerprint(other) != fingerprint(unequal));

  const auto split = [](int color) { return Call{.collective = Collective::split, .root = color}; };
  CHECK(fingerprint(split(0)) == fingerprint(split(1)));

  const std::vector<std::uint64_t> fingerprints = {7, 7, 8, 7, 9};
  CHECK(first_disagreement(fingerprints) == 2);
  CHECK(first_disagreement(std::span(fingerprints).first(2)) == 0);
}

TEST_CASE("a missing rank is named when the deadline has passed") {
  const auto run = GENERATE(&run_ranks, &run_world);
  test::TestClock clock;
  const auto body = [&](Communicator& group) {
    if (group.rank() == 1) clock.pass_when_waiting(2, std::chrono::milliseconds(50));
    if (group.rank() == 1 || group.rank() == 3) return;
    group.barrier(compute());
  };
  REQUIRE_THROWS_WITH(run({.ranks = 4,
                           .device = test::device(),
                           .threads = 1,
                           .deadline = {std::chrono::milliseconds(50), clock}},
                          body),
                      Catch::Contains("waited 50 ms") && Catch::Contains("for ranks 1, 3"));
}

TEST_CASE("an abort reaches groups that were split off before it and after it") {
  const std::vector<int> members = {0, 1};
  const auto rendezvous = [&] {
    return std::make_shared<Rendezvous>(members, std::chrono::minutes(5));
  };
  const auto world = rendezvous(), earlier = rendezvous(), later = rendezvous();
  world->add_child(earlier);
  CHECK_FALSE(earlier->aborted());
  world->abort("enough");
  world->add_child(later);
  CHECK(earlier->aborted() == "enough");
  CHECK(later->aborted() == "enough");
  CHECK_THROWS_WITH(later->open(0, "a call"), "enough");
}

TEST_CASE("results are refused after an abort") {
  const auto body = [](Communicator& world) {
    world.raise_if_aborted();
    world.barrier(compute());
    if (world.rank() == 1) world.abort("enough");
    while (!world.aborted()) std::this_thread::yield();
    world.raise_if_aborted();
    throw Error("not refused");
  };
  REQUIRE_THROWS_WITH(test::on_ranks(2, body), Catch::Contains("enough"));
}

TEST_CASE("groups know how many of their consecutive ranks share a node") {
  const auto counts = [](int ranks, int ranks_per_node) {
    std::vector<int> found(3);
    run_ranks(
        {.ranks = ranks, .threads = 1, .ranks_per_node = ranks_per_node}, [&](Communicator& world) {
          const auto pairs = world.split(world.rank() / 2);
          const auto strided = world.split(world.rank() % 2);
          if (world.rank() != 0) return;
          found = {world.ranks_per_node(), pairs->ranks_per_node(), strided->ranks_per_node()};
        });
    return found;
  };
  CHECK(counts(8, 0) == std::vector{8, 2, 4});  // one machine
  CHECK(counts(8, 4) == std::vector{4, 2, 2});  // two nodes
  CHECK(counts(8, 1) == std::vector{1, 1, 1});
  CHECK(counts(8, 3) == std::vector{1, 2, 1});  // nodes of 3, 3 and 2 ranks
}

TEST_CASE("the history of a step finds the first call that differs between two ranks") {
  const test::Rank rank;
  const auto history = [](const std::vector<std::string>& labels, std::uint64_t first) {
    CallHistory made;
    for (const std::string& label : labels) {
      made.add({.collective = Collective::barrier, .label = label, .number = first++});
    }
    return made;
  };
  const std::vector<std::string> labels = {"a", "b", "c", "d"};
  const CallHistory one = history(labels, 100);
  CHECK(one.hash() == history(labels, 100).hash());
  CHECK(one.hash() != history(labels, 101).hash());
  CHECK(one.hash() != CallHistory().hash());
  const auto difference = [&](const CallHistory& other) {
    CHECK(one.hash() != other.hash());
    return CallHistory::first_difference(one.summary(), other.summary());
  };
  CHECK(difference(history({"a", "b", "x", "d"}, 100)) == 102);
  CHECK(difference(history({"a", "b", "c"}, 100)) == 103);
  CHECK(difference(history({"a", "b", "c", "d", "e"}, 100)) == 104);
  CHECK(one.description(101) == "call 101, barrier of 0 bytes in 0 tensors, for b");
  CHECK(one.description(104) == "no call 104");

  std::vector<std::string> many(CallHistory::kKept + 10, "same");
  many.back() = "last";
  const CallHistory long_one = history(many, 0);
  many.front() = "first";
  const CallHistory other = history(many, 0);
  CHECK(long_one.hash() != other.hash());  // by a call that is no longer kept
  CHECK_THAT(long_one.description(0), Catch::Contains("no longer known"));
  CHECK_THAT(long_one.description(10), Catch::Contains("same"));
  many.back() = "changed";
  CHECK(CallHistory::first_difference(long_one.summary(), history(many, 0).summary()) ==
        many.size() - 1);
}

TEST_CASE("threads that cannot be started end the run with one error", "[cpu]") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return;  // sanitizers need more address space than any limit leaves
#endif
  const test::Child child = test::run_child([] {
    // The stacks of some of the 400 threads do not fit: 8 MiB each.
    const rlimit limit = {std::size_t{1} << 30, std::size_t{1} << 30};
    setrlimit(RLIMIT_AS, &limit);
    try {
      run_ranks({.ranks = 400, .threads = 1},
                [](Communicator& world) { world.barrier(compute()); });
    } catch (const Error& error) {
      std::puts(error.what());
      std::fflush(stdout);
    }
  });
  INFO(child.output);
  CHECK_FALSE(child.failed());
  CHECK_THAT(child.output, Catch::Contains("cannot start its thread, one of 400") &&
                               Catch::Contains("take fewer ranks"));
}

TEST_CASE("a world without a launcher has ranks that are threads, one by default") {
  for (const int ranks : {0, 1, 3}) {
    std::atomic<int> bodies = 0;
    run_world({.ranks = ranks, .device = test::device(), .threads = 1}, [&](Communicator& world) {
      if (world.size() == std::max(1, ranks) && context().world_size() == world.size()) ++bodies;
    });
    CHECK(bodies == std::max(1, ranks));
  }
  REQUIRE_THROWS_WITH(run_world({.ranks = -1}, [](Communicator&) {}),
                      Catch::Contains("ranks is -1"));
}

}  // namespace tessera
