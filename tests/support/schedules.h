// Results must not depend on who works when: running a test's body under several schedules.
#pragma once

#include <vector>

#include "tests/support/rank.h"

#if defined(TESSERA_EMULATED)
#include "tests/support/schedule_guard.h"
#endif

namespace tessera::test {

/// Calls `body()` in a Rank of its own under every schedule:
///   - on the emulated GPU, four orders of threads and blocks;
///   - on a GPU, four times: it has an order of its own every time;
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

/// What `compute()` gave under each schedule, for a test to compare: all equal, where results must
/// not depend on it.
template <typename Compute>
auto under_every_schedule(Compute compute) {
  std::vector<decltype(compute())> results;
  for_every_schedule([&] { results.push_back(compute()); });
  return results;
}

}  // namespace tessera::test
