// Ranks with threads that are bound to cores.
#include "sharding/comm/pin.h"

#include <pthread.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

#include "runtime/context.h"
#include "runtime/cores.h"
#include "runtime/error.h"
#include "sharding/comm/stream.h"
#include "sharding/comm/threads/threads.h"
#include "tests/support/cores.h"

namespace tessera {
TEST_CASE("ranks that may run on the same cores take neighbouring runs of them") {
  const std::vector<CoreWish> ranks(3, {.allowed = {0, 1, 2, 4, 6, 7, 9}, .threads = 2});
  CHECK(share_out_cores(ranks, 0) == Cores{0, 1});
  CHECK(share_out_cores(ranks, 1) == Cores{2, 4});
  CHECK(share_out_cores(ranks, 2) == Cores{6, 7});
}

TEST_CASE("ranks that a launcher has bound keep their own cores") {
  const std::vector<CoreWish> ranks = {{{4, 5, 6}, 2}, {{0, 1}, 2}, {{4, 5, 6, 7}, 2}};
  CHECK(share_out_cores(ranks, 0) == Cores{4, 5});
  CHECK(share_out_cores(ranks, 1) == Cores{0, 1});
  CHECK(share_out_cores(ranks, 2) == Cores{6, 7});
}

TEST_CASE("fewer cores than threads are an error of the rank that lacks them") {
  const std::vector<CoreWish> ranks(2, {.allowed = {0, 1, 2}, .threads = 2});
  CHECK(share_out_cores(ranks, 0) == Cores{0, 1});
  CHECK_THROWS_WITH(share_out_cores(ranks, 1),
                    "runtime.pin: 2 threads for 1 free core of 3; take fewer ranks or threads, or "
                    "set runtime.pin=false");
}

TEST_CASE("each thread of each rank has a core of its own, and the first gets all back") {
  const Cores all = cores_of_system();
  for (const std::size_t ranks : {std::size_t{1}, std::min(std::size_t{2}, all.size())}) {
    const std::size_t threads = all.size() / ranks;
    std::vector<std::vector<Cores>> of_rank(ranks), expected(ranks);
    Cores of_stream;
    run_ranks({.ranks = static_cast<int>(ranks), .threads = static_cast<int>(threads), .pin = true},
              [&](Communicator& world) {
                of_rank[static_cast<std::size_t>(world.rank())] =
                    cores_of_team(context().threads());
                if (world.rank() > 0) return;
                const Stream& stream = context().side_stream("another");
                stream.enqueue([&] { of_stream = cores_of_system(); });
                stream.synchronize();
              });
    for (std::size_t i = 0; i < ranks * threads; ++i) expected[i / threads].push_back({all[i]});
    CHECK(of_rank == expected);
    CHECK(of_stream == all);
    CHECK(cores_of_system() == all);
  }
}

TEST_CASE("ranks keep to the cores that their process is left with") {
  const int last = cores_of_system().back();
  Cores of_rank, afterwards;
  std::string message;
  std::thread([&] {
    set_cores(pthread_self(), {&last, 1});
    run_ranks({.ranks = 1, .pin = true}, [&](Communicator&) {
      if (context().threads().size() == 1) of_rank = cores_of_system();
    });
    try {
      run_ranks({.ranks = 2, .pin = true}, [](Communicator&) {});
    } catch (const Error& error) {
      message = error.what();
    }
    afterwards = cores_of_system();
  }).join();
  CHECK(of_rank == Cores{last});
  CHECK(message ==
        "rank 1: runtime.pin: 1 thread for 0 free cores of 1; take fewer ranks or "
        "threads, or set runtime.pin=false");
  CHECK(afterwards == Cores{last});
}

}  // namespace tessera
