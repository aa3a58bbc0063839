// Results must not depend on who works when: running a test's body under several schedules.
#pragma once

#include <vector>

#include "tests/support/rank.h"

#if defined(TESSERA_EMULATED)
#include "kernels/emulation/emulator.h"
#endif

namespace tessera::test {

#if defined(TESSERA_EMULATED)
/// The emulator's schedule for as long as this lives.
class ScheduleGuard {
 public:
  explicit ScheduleGuard(emulation::Schedule schedule) : before_(emulation::schedule()) {
    emulation::set_schedule(schedule);
  }
  ~ScheduleGuard() { emulation::set_schedule(before_); }
  ScheduleGuard(const ScheduleGuard&) = delete;
  ScheduleGuard& operator=(const ScheduleGuard&) = delete;

 private:
  emulation::Schedule before_;
};
#endif

/// Calls `body()` in a Rank of its own under every schedule:
///   - on the emulated GPU, four orders of threads and blocks;
///   - on a GPU, four times: it has an order of its own every time;
///   - on the CPU, with 1, 2 and 3 threads.
/// Tensors that outlive the body need a Rank around the call.
template <typename Body>
void for_every_schedule(Body body) {
#if defined(TESSERA_EMULATED)
  using emulation::Order;
  for (const emulation::Schedule schedule : {
           emulation::Schedule{Order::forward, Order::forward, 1},
           emulation::Schedule{Order::reverse, Order::reverse, 1},
           emulation::Schedule{Order::shuffled, Order::shuffled, 1},
           emulation::Schedule{Order::shuffled, Order::forward, 2},
       }) {
    const ScheduleGuard guard(schedule);
    const Rank rank;
    body();
  }
#else
  const std::vector<int> threads = kHasCuda ? std::vector{2, 2, 2, 2} : std::vector{1, 2, 3};
  for (const int count : threads) {
    const Rank rank(count);
    body();
  }
#endif
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
