// Threads that are bound to cores. The machine may have a single core.
#include "runtime/cores.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "runtime/error.h"
#include "runtime/spin.h"
#include "runtime/stream.h"
#include "runtime/threads.h"
#include "tests/support/cores.h"
#include "tests/support/waiting.h"

namespace tessera {

using Catch::Matchers::Contains;

TEST_CASE("a bound thread runs on its core, and afterwards on those from before") {
  const Cores all = cores_of_system();
  REQUIRE(allowed_cores() == all);
  for (const int core : all) {
    const BoundThread bound(core);
    CHECK(cores_of_system() == Cores{core});
    CHECK(sched_getcpu() == core);
    CHECK(allowed_cores() == all);
    CHECK(available_threads() == static_cast<int>(all.size()));
    const BoundThread again(all.front());
    CHECK(cores_of_system() == Cores{all.front()});
    CHECK(allowed_cores() == all);
  }
  CHECK(cores_of_system() == all);
  CHECK(allowed_cores() == all);
}

TEST_CASE("a thread that a bound thread starts is not bound") {
  const Cores all = cores_of_system();
  const Cores own = {all.back()};
  const BoundThread bound(own.front());
  Cores unbound, of_stream;
  start_unbound([&] { unbound = cores_of_system(); }).join();
  CHECK(unbound == all);
  const Stream stream = Stream::worker("side", 1, nullptr);
  stream.enqueue([&] { of_stream = cores_of_system(); });
  stream.synchronize();
  CHECK(of_stream == all);
  ThreadTeam team(2);
  CHECK(cores_of_team(team) == std::vector<Cores>{own, all});
  CHECK(cores_of_system() == own);
}

TEST_CASE("allowed cores are those of a narrowed thread") {
  const int last = cores_of_system().back();
  Cores narrow;
  int threads = 0;
  std::thread([&] {
    set_cores(pthread_self(), {&last, 1});
    narrow = allowed_cores();
    threads = available_threads();
  }).join();
  CHECK(narrow == Cores{last});
  CHECK(threads == 1);
}

TEST_CASE("a core that the process does not have is an error, and changes nothing") {
  const Cores all = cores_of_system();
  constexpr int kNone = kMostCores - 1;
  REQUIRE(all.back() < kNone);
  CHECK_THROWS_WITH(BoundThread(kNone),
                    "cannot bind a thread to core 1023: Invalid argument; set runtime.pin=false");
  CHECK(cores_of_system() == all);
  CHECK(allowed_cores() == all);
  ThreadTeam team(2);
  CHECK_THROWS_WITH(team.bind_workers(Cores{all.front(), kNone}), Contains("to core 1023: "));
  CHECK(cores_of_team(team) == std::vector<Cores>{all, all});
}

TEST_CASE("each worker of a bound team has its own core, and the caller keeps its cores") {
  const Cores all = cores_of_system();
  ThreadTeam team(static_cast<int>(all.size()));
  const Cores cores(all.rbegin(), all.rend());
  team.bind_workers(cores);
  std::vector<Cores> expected;
  for (const int core : cores) expected.push_back({core});
  expected.front() = all;
  CHECK(cores_of_team(team) == expected);
  CHECK_THROWS_WITH(team.bind_workers({}), Contains("0 cores for a team"));
}

TEST_CASE("a team is bound while a loop runs on it") {
  const Cores all = cores_of_system();
  ThreadTeam team(2);
  team.run(2, [&](std::int64_t i) {
    if (i == 0) team.bind_workers(Cores{all.front(), all.back()});
  });
  CHECK(cores_of_team(team) == std::vector<Cores>{all, {all.back()}});
}

TEST_CASE("a thread spins while its core is its own, and sleeps at once while it is shared") {
  const int core = cores_of_system().back();
  const BoundThread bound(core);
  // The core may be shared by threads of other programs for a moment.
  const auto spins = [] { return Spin().again(); };
  test::wait_for("the thread spins", spins);
  std::atomic<bool> done = false;
  std::thread rival([&] {
    set_cores(pthread_self(), {&core, 1});
    while (!done) {
    }
  });
  test::wait_for("the thread sleeps at once", [&] {
    spin_until([] { return false; });  // learns about the rival
    return !spins();
  });
  done = true;
  rival.join();
  test::wait_for("the thread spins again", spins);
}

}  // namespace tessera
