// The schedules that tests run emulated kernels under.
#pragma once

#include "runtime/emulation/device/emulator.h"

namespace tessera::test {

inline constexpr emulation::Schedule kSchedules[] = {
    {emulation::Order::forward, emulation::Order::forward, 1},
    {emulation::Order::reverse, emulation::Order::reverse, 1},
    {emulation::Order::shuffled, emulation::Order::shuffled, 1},
    {emulation::Order::shuffled, emulation::Order::forward, 2},
};

/// Sets the emulator's schedule for the scope.
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

}  // namespace tessera::test
