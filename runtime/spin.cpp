#include "runtime/spin.h"

#include <thread>

namespace tessera {
namespace {

using SteadyClock = std::chrono::steady_clock;

/// How long a thread spins.
constexpr auto kSpinning = std::chrono::microseconds(100);
/// A core that comes back later than this is shared.
constexpr auto kLate = std::chrono::microseconds(50);
/// How long a thread takes its core for shared.
constexpr auto kShared = std::chrono::milliseconds(10);

constexpr int kPausesPerYield = 32;

/// The end of the time in which the calling thread does not spin.
thread_local SteadyClock::time_point shared_until_ = {};

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

bool Spin::again() {
  if (count_++ == 0) {
    const auto now = SteadyClock::now();
    if (now < shared_until_) return false;
    end_ = now + kSpinning;
  }
  if (count_ % kPausesPerYield != 0) {
    pause();
    return true;
  }
  const auto before = SteadyClock::now();
  std::this_thread::yield();
  const auto after = SteadyClock::now();
  if (after > before + kLate) {
    shared_until_ = after + kShared;
    return false;
  }
  return after < end_;
}

}  // namespace tessera
