#include "runtime/threads.h"

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "runtime/context.h"
#include "tests/support/rank.h"
#include "tests/support/waiting.h"

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

namespace {

void wait_for(const std::atomic<bool>& flag) {
  test::wait_for("the other thread begins its task", [&] { return flag.load(); });
}

}  // namespace

TEST_CASE("every thread of a team begins with its own share of neighbouring tasks") {
  ThreadTeam team(2);
  std::array<std::atomic<bool>, 8> begun{};
  // Each task of a half waits for one of the other half, so no thread can take two of one half first.
  team.run(8, [&](std::int64_t i) {
    begun[i] = true;
    wait_for(begun[(i + 4) % 8]);
  });
}

TEST_CASE("a thread that is done takes tasks of the other's share") {
  ThreadTeam team(2);
  std::atomic<bool> last_begun = false;
  team.run(8, [&](std::int64_t i) {
    if (i == 0) wait_for(last_begun);  // whichever thread has it
    if (i == 3) last_begun = true;
  });
}

TEST_CASE("tasks of a group begin after those of the groups before have been taken") {
  constexpr int kThreads = 3, kCount = 100;
  ThreadTeam team(kThreads);
  const std::vector<std::int64_t> ends{kCount, 2 * kCount, 2 * kCount, 3 * kCount};
  std::array<std::atomic<int>, 4> begun{};
  std::atomic<int> early = 0;
  team.run_in_groups(ends, [&](std::int64_t i) {
    const auto group = static_cast<std::size_t>(i / kCount);
    ++begun[group];
    // The other threads may each have taken one that they have not begun.
    if (group > 0) early += begun[group - 1] < kCount - (kThreads - 1);
  });
  REQUIRE(early == 0);
  REQUIRE((begun[0] == kCount && begun[1] == kCount && begun[2] == kCount));
}

TEST_CASE("a nested loop runs on the calling thread") {
  ThreadTeam team(2);
  std::vector<int> sums(4, 0);
  team.run(4, [&](std::int64_t i) { team.run(10, [&](std::int64_t j) { sums[i] += int(j); }); });
  REQUIRE(sums == std::vector<int>(4, 45));
}

TEST_CASE("an exception from any index, on a team of any size, reaches the caller once") {
  for (const int size : {1, 2, 3}) {
    ThreadTeam team(size);
    for (std::int64_t bad = 0; bad < 12; ++bad) {
      std::atomic<int> calls = 0;
      REQUIRE_THROWS_AS(team.run(12,
                                 [&](std::int64_t i) {
                                   ++calls;
                                   if (i == bad) throw bad;
                                 }),
                        std::int64_t);
      REQUIRE(calls <= 12);
      calls = 0;
      team.run(12, [&](std::int64_t) { ++calls; });  // does not throw again
      REQUIRE(calls == 12);
    }
  }
}

TEST_CASE("two threads may use one team at once") {
  ThreadTeam team(3);
  const auto sum_rounds = [&](std::int64_t& sum) {
    for (int round = 0; round < 200; ++round) {
      std::vector<std::int64_t> parts(17, 0);
      team.run(17, [&](std::int64_t i) { parts[i] += i; });
      sum += std::accumulate(parts.begin(), parts.end(), std::int64_t{0});
    }
  };
  std::int64_t here = 0, there = 0;
  std::thread other([&] { sum_rounds(there); });
  sum_rounds(here);
  other.join();
  REQUIRE(here == 200 * 136);
  REQUIRE(there == 200 * 136);
}

TEST_CASE("a team works after its workers fell asleep") {
  ThreadTeam team(2);
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // far beyond any spinning
    std::atomic<int> calls = 0;
    team.run(8, [&](std::int64_t) { ++calls; });
    REQUIRE(calls == 8);
  }
}

TEST_CASE("the caller waits for work that outlasts its spinning") {
  ThreadTeam team(2);
  std::vector<int> done(2, 0);
  team.run(2, [&](std::int64_t i) {
    // Whichever thread takes index 1, one of them waits 5 ms for the other.
    if (i == 1) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    done[i] = 1;
  });
  REQUIRE(done == std::vector<int>{1, 1});
}

TEST_CASE("a team may be destroyed at once, used or not") {
  for (int i = 0; i < 50; ++i) {
    ThreadTeam team(1 + i % 4);
    if (i % 2 == 0) team.run(3, [](std::int64_t) {});
  }
  REQUIRE(ThreadTeam(0).size() == 1);
  REQUIRE(available_threads() >= 1);
}

TEST_CASE("a body has the caller's context, stream and category on every thread") {
  const test::Rank rank(2);
  const StreamGuard stream(context().side_stream("side"));
  const CategoryScope category(Category::gradients);
  struct Seen {
    const RankContext* context = nullptr;
    const Stream* stream = nullptr;
    Category category = Category::other;
    std::int64_t nested = 0;
    std::thread::id thread;
  };
  std::vector<Seen> seen(2);
  std::atomic<int> started = 0;
  parallel_for(2, 1, [&](std::int64_t i, std::int64_t) {
    ++started;
    while (started < 2) std::this_thread::yield();  // two threads take one chunk each
    std::int64_t nested = 0;
    parallel_for(10, 3, [&](std::int64_t begin, std::int64_t end) { nested += end - begin; });
    seen[i] = {context_or_null(), &current_stream(), current_category(), nested,
               std::this_thread::get_id()};
  });
  REQUIRE(seen[0].thread != seen[1].thread);
  for (const Seen& each : seen) {
    REQUIRE(each.context == &context());
    REQUIRE(each.stream == &current_stream());
    REQUIRE(each.category == Category::gradients);
    REQUIRE(each.nested == 10);
  }
}

TEST_CASE("an empty loop makes no call, and a chunk of 0 is refused") {
  const test::Rank rank(2);
  int calls = 0;
  context().threads().run(0, [&](std::int64_t) { ++calls; });
  parallel_for(0, 10, [&](std::int64_t, std::int64_t) { ++calls; });
  REQUIRE(calls == 0);
  REQUIRE_THROWS_WITH(parallel_for(5, 0, [](std::int64_t, std::int64_t) {}),
                      Catch::Contains("the chunk is 0"));
}

TEST_CASE("chunk_count counts the short last chunk") {
  REQUIRE(chunk_count(0, 8) == 0);
  REQUIRE(chunk_count(1, 8) == 1);
  REQUIRE(chunk_count(16, 8) == 2);
  REQUIRE(chunk_count(17, 8) == 3);
}

TEST_CASE("parallel_for makes chunks of the given size and a short last one") {
  const test::Rank rank(3);
  std::vector<int> owner(103, -1);
  parallel_for(103, 10, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) owner[i] = int(begin);
  });
  for (int i = 0; i < 103; ++i) REQUIRE(owner[i] == i / 10 * 10);
}

}  // namespace tessera
