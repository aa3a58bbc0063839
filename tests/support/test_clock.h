// TestClock: the time of deadlines, which passes only when a test says so.
#pragma once

#include <atomic>
#include <stdexcept>
#include <string>

#include "sharding/comm/deadline.h"
#include "tests/support/waiting.h"

namespace tessera::test {

class TestClock final : public DeadlineClock {
 public:
  TimePoint now() override {
    ++questions_;
    if (ticks_) pass(std::chrono::milliseconds(1));
    return TimePoint(std::chrono::nanoseconds(now_));
  }

  bool wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, TimePoint end,
            const std::function<bool()>& done) override {
    ++waits_;
    ++waiting_;
    const auto limit = std::chrono::steady_clock::now() + kSafetyLimit;
    bool answer = false;
    while (!(answer = done()) && now() < end) {
      if (std::chrono::steady_clock::now() > limit) throw std::runtime_error("waits for ever");
      changed.wait_for(lock, std::chrono::milliseconds(1));
    }
    --waiting_;
    return answer;
  }

  void pass(std::chrono::nanoseconds time) { now_ += time.count(); }
  /// From now on a millisecond passes with each question about the time: for code that polls.
  void tick() { ticks_ = true; }
  /// Waits until the time has been asked for so many times more.
  void wait_for_questions(int more) {
    const int end = questions_ + more;
    wait_for("the time is asked for", [&] { return questions_ >= end; });
  }
  /// Lets time pass as soon as so many threads wait at once.
  void pass_when_waiting(int threads, std::chrono::nanoseconds time) {
    wait_for(std::to_string(threads) + " threads wait", [&] { return waiting_ == threads; });
    pass(time);
  }

  /// Lets time pass as soon as so many waits have begun, those that have ended included.
  void pass_after_waits(int waits, std::chrono::nanoseconds time) {
    wait_for(std::to_string(waits) + " waits have begun", [&] { return waits_ >= waits; });
    pass(time);
  }

 private:
  std::atomic<std::int64_t> now_ = 0;
  std::atomic<int> waits_ = 0, waiting_ = 0, questions_ = 0;
  std::atomic<bool> ticks_ = false;
};

}  // namespace tessera::test
