#include "runtime/threads.h"

#include <catch2/catch.hpp>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "tests/support/rank.h"

namespace tessera {

TEST_CASE("a team runs every index exactly once, for any size") {
  for (const int size : {1, 2, 3, 5}) {
    ThreadTeam team(size);
    for (int repeat = 0; repeat < 50; ++repeat) {
      std::vector<int> calls(97, 0);
      team.run(97, [&](std::int64_t i) { ++calls[i]; });
      REQUIRE(calls == std::vector<int>(97, 1));
    }
  }
}

TEST_CASE("a team rethrows the first exception and works on afterwards") {
  ThreadTeam team(3);
  REQUIRE_THROWS_WITH(team.run(20,
                               [](std::int64_t i) {
                                 if (i == 7) throw std::runtime_error("seven");
                               }),
                      "seven");
  std::vector<int> calls(20, 0);
  team.run(20, [&](std::int64_t i) { ++calls[i]; });
  REQUIRE(std::accumulate(calls.begin(), calls.end(), 0) == 20);
}

TEST_CASE("a nested loop runs on the calling thread") {
  ThreadTeam team(2);
  std::vector<int> sums(4, 0);
  team.run(4, [&](std::int64_t i) { team.run(10, [&](std::int64_t j) { sums[i] += int(j); }); });
  REQUIRE(sums == std::vector<int>(4, 45));
}

TEST_CASE("parallel_for hands out chunks of the asked size with a short last one") {
  const test::Rank rank(3);
  std::vector<int> owner(103, -1);
  parallel_for(103, 10, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) owner[i] = int(begin);
  });
  for (int i = 0; i < 103; ++i) REQUIRE(owner[i] == i / 10 * 10);
}

}  // namespace tessera
