// Atomic operations, on global and shared memory.
//
// They order memory (acquire and release), which CUDA's do not: a lock or a counter made with them
// and without __threadfence works here, and may not on a GPU.
#pragma once

#include <atomic>
#include <type_traits>

namespace tessera::emulation {

/// Replaces *address by change(*address); what was there before.
template <typename T, typename Change>
T change_atomically(T* address, Change change) {
  std::atomic_ref<T> target(*address);
  T old = target.load(std::memory_order_acquire);
  while (!target.compare_exchange_weak(old, change(old), std::memory_order_acq_rel)) {
  }
  return old;
}

}  // namespace tessera::emulation

template <typename T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return tessera::emulation::change_atomically(address,
                                               [=](T old) { return static_cast<T>(old + value); });
}
template <typename T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  return tessera::emulation::change_atomically(address,
                                               [=](T old) { return old < value ? value : old; });
}
template <typename T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  return tessera::emulation::change_atomically(address,
                                               [=](T old) { return value < old ? value : old; });
}
template <typename T>
T atomicOr(T* address, std::type_identity_t<T> value) {
  return tessera::emulation::change_atomically(address, [=](T old) { return old | value; });
}
template <typename T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).exchange(value, std::memory_order_acq_rel);
}
template <typename T>
T atomicCAS(T* address, std::type_identity_t<T> compare, std::type_identity_t<T> value) {
  std::atomic_ref<T>(*address).compare_exchange_strong(compare, value, std::memory_order_acq_rel);
  return compare;
}

inline void __threadfence() {}
inline void __threadfence_block() {}
