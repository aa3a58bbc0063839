#include "runtime/pace.h"

#include <ctime>

#include "runtime/check.h"

namespace tessera {
namespace {

std::chrono::nanoseconds processor_time_of_thread() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

Pace::Pace(double share) : share_(share) {
  check(share > 0.0 && share <= 1.0, "pace: a share of {}, expected more than 0 and at most 1",
        share);
}

void Pace::begin() {
  start_ = std::chrono::steady_clock::now();
  processor_time_at_start_ = processor_time_of_thread();
}

void Pace::rest() {
  if (share_ == 1.0) return;
  const std::chrono::duration<double, std::nano> used =
      processor_time_of_thread() - processor_time_at_start_;
  const auto end = start_ + std::chrono::ceil<std::chrono::nanoseconds>(used / share_);
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, end, [&] { return hurry_; });
}

void Pace::hurry() {
  const std::scoped_lock lock(mutex_);
  hurry_ = true;
  changed_.notify_all();
}

}  // namespace tessera
