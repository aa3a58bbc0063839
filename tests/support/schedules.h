// Runs a test's body under several schedules: results must not depend on the order of work.
#pragma once

#include <catch2/catch.hpp>
#include <vector>

#include "tests/support/rank.h"

#if defined(TESSERA_EMULATED)
#include "tests/support/schedule_guard.h"
#endif

namespace tessera::test {

/// Calls `body()` in a Rank of its own under every schedule:
///   - on the emulated GPU, four orders of threads and blocks;
///   - on a GPU, four times, each in an order of the GPU's;
///   - on the CPU, with 1, 2 and 3 threads.
/// Tensors that outlive the body need a Rank around the call.
template <typename Body>
void for_every_schedule(Body body) {
#if defined(TESSERA_EMULATED)
  if (kOnGpu) {
    for (const emulation::Schedule& schedule : kSchedules) {
      const ScheduleGuard guard(schedule);
      const Rank rank;
      body();
    }
    return;
  }
#endif
  const std::vector<int> threads = kOnGpu ? std::vector{2, 2, 2, 2} : std::vector{1, 2, 3};
  for (const int count : threads) {
    const Rank rank(count);
    body();
  }
}

/// The results of `compute()` under each schedule. The test checks that they are equal.
template <typename Compute>
auto under_every_schedule(Compute compute) {
  std::vector<decltype(compute())> results;
  for_every_schedule([&] { results.push_back(compute()); });
  return results;
}

/// The results of `compute()` are equal under every schedule.
template <typename Compute>
void require_equal_under_every_schedule(Compute compute) {
  const auto results = under_every_schedule(compute);
  for (const auto& result : results) REQUIRE((result == results.front()));  // too many to print
}

}  // namespace tessera::test
