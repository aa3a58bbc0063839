// How a thread waits for another one before it sleeps.
#pragma once

#include <thread>

namespace tessera {

/// How often a waiting thread spins. Kernels of a training step follow one another within
/// microseconds, while waking a sleeping thread costs tens of them.
inline constexpr int kSpins = 4000;

/// Spin number `spins`. A spinning thread yields its core now and then: with more threads than cores,
/// the thread that it waits for may need the core.
inline void spin(int spins) {
  constexpr int kSpinsPerYield = 32;
  if (spins % kSpinsPerYield == kSpinsPerYield - 1) return std::this_thread::yield();
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace tessera
