// Delays of a stream's work, by random numbers.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>

#include "runtime/random.h"

namespace tessera::test {

/// Sleeps for up to 100 microseconds, or not at all in half of the cases.
inline std::function<void()> random_delay(const RandomStream& random) {
  return [random, calls = std::uint64_t{0}]() mutable {
    const std::uint64_t microseconds = random.below(calls++, 200);
    if (microseconds < 100) std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
  };
}

}  // namespace tessera::test
