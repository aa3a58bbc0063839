// The times of works that take turns.
#include <catch2/catch.hpp>
#include <string>

#include "tests/support/rank.h"
#include "tools/bench/stopwatch.h"
#include "tools/measure/median.h"

namespace tessera {

TEST_CASE("quartiles are the values at the quarters of the sorted list") {
  const Quartiles five = quartiles({5, 1, 4, 2, 3});
  CHECK(five.first == 2.0);
  CHECK(five.median == 3.0);
  CHECK(five.third == 4.0);
  const Quartiles eight = quartiles({8, 7, 6, 5, 4, 3, 2, 1});
  CHECK(eight.first == 3.0);
  CHECK(eight.median == median({8, 7, 6, 5, 4, 3, 2, 1}));
  CHECK(eight.third == 7.0);
  CHECK(quartiles({7}).third == 7.0);
  CHECK_THROWS_WITH(quartiles({}), "quartiles need at least one value");
}

TEST_CASE("a kernel and its baseline take turns") {
  const test::Rank rank;
  const Stopwatch stopwatch(/*runs=*/3, /*flushed_bytes=*/5000);
  std::string calls;
  const std::vector<Quartiles> times =
      stopwatch.in_turns({[&] { calls += 'a'; }, [&] { calls += 'b'; }});
  CHECK(calls == "ababababab");  // two warm-ups and three runs
  REQUIRE(times.size() == 2);
  CHECK(times[1].first <= times[1].median);
  CHECK(times[1].median <= times[1].third);
  CHECK(stopwatch.flushed_bytes() == 8192);  // whole rows
}

}  // namespace tessera
