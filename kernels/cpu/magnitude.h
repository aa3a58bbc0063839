// The largest magnitude of many values, on the CPU.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

namespace tessera::cpu {

/// The bits of |x| as a float. They are ordered as the values are, with NaN above infinity. So an integer maximum
/// lets NaN through.
template <typename C>
std::int32_t bits_of_magnitude(C x) {
  return std::bit_cast<std::int32_t>(static_cast<float>(x)) & 0x7fffffff;
}

/// `largest` = the larger of it and the value with these bits, among threads that do the same.
inline void raise(float& largest, std::int32_t bits) {
  std::atomic_ref<float> shared(largest);
  float seen = shared.load(std::memory_order_relaxed);
  while (
      bits_of_magnitude(seen) < bits &&
      !shared.compare_exchange_weak(seen, std::bit_cast<float>(bits), std::memory_order_relaxed)) {
  }
}

}  // namespace tessera::cpu
