// Deadline: how long a rank waits for the others, and the clock that measures it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

namespace tessera {

/// The time that deadlines count. Tests replace it, so no result depends on the machine's speed.
class DeadlineClock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  DeadlineClock() = default;
  virtual ~DeadlineClock() = default;
  DeadlineClock(const DeadlineClock&) = delete;
  DeadlineClock& operator=(const DeadlineClock&) = delete;

  virtual TimePoint now() { return std::chrono::steady_clock::now(); }
  /// Sleeps until `done`, or until `end` has passed. `changed` is notified when the answer may
  /// change. Returns the last answer.
  virtual bool wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                    TimePoint end, const std::function<bool()>& done) {
    return changed.wait_until(lock, end, done);
  }

  /// The system's clock.
  static DeadlineClock& steady() {
    static DeadlineClock clock;
    return clock;
  }
};

class Deadline {
 public:
  /// `clock` must outlive all waits.
  template <typename Rep, typename Period>
  Deadline(std::chrono::duration<Rep, Period> length,
           DeadlineClock& clock = DeadlineClock::steady())
      : length_(length), clock_(&clock) {}

  std::chrono::milliseconds length() const { return length_; }
  /// Its length in milliseconds, for messages.
  std::chrono::milliseconds::rep count() const { return length_.count(); }
  DeadlineClock& clock() const { return *clock_; }
  /// The end of a wait that begins now.
  DeadlineClock::TimePoint end() const { return clock_->now() + length_; }

 private:
  std::chrono::milliseconds length_;
  DeadlineClock* clock_;
};

}  // namespace tessera
