// Pace: a thread's share of a core. Only bounds that hold on a loaded machine are checked.
#include "runtime/pace.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <ctime>
#include <thread>

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

std::chrono::nanoseconds processor_time() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

/// Takes so much processor time.
void work(std::chrono::nanoseconds time) {
  const auto end = processor_time() + time;
  while (processor_time() < end) {
  }
}

}  // namespace

TEST_CASE("a paced thread takes at most its share of a core") {
  constexpr double kShare = 0.25;
  Pace pace(kShare);
  const auto start = Clock::now();
  pace.begin();
  const auto before = processor_time();  // after the pace's own reading, so its sum is the larger
  for (int piece = 0; piece < 5; ++piece) {
    work(milliseconds(2));
    const auto used = processor_time() - before;
    pace.rest();
    CHECK(Clock::now() - start >= used / kShare);
  }
}

TEST_CASE("a thread in a hurry does not rest") {
  constexpr double kShare = 1e-6;  // 2 ms of work ask for a rest of half an hour
  Pace pace(kShare);
  std::thread worker([&] {
    pace.begin();
    for (int piece = 0; piece < 3; ++piece) {
      work(milliseconds(2));
      pace.rest();
    }
  });
  std::this_thread::sleep_for(milliseconds(10));  // most often the thread rests by then
  pace.hurry();
  worker.join();
}

TEST_CASE("with the whole core as its share a thread does not rest") {
  Pace pace(1.0);
  pace.begin();
  work(milliseconds(1));
  pace.rest();
}

TEST_CASE("a share is more than nothing and at most a core") {
  CHECK_THROWS_WITH(Pace(0.0), "pace: a share of 0, expected more than 0 and at most 1");
  CHECK_THROWS_WITH(Pace(1.5), "pace: a share of 1.5, expected more than 0 and at most 1");
}

}  // namespace tessera
