// Atomic operations, on global and shared memory.
//
// They order no other memory, as in CUDA: a lock or a counter needs __threadfence. Without it the
// thread sanitizer reports a race.
#pragma once

#include <atomic>
#include <type_traits>

namespace tessera::emulation {

void fence_device();
void fence_block();

/// Before every atomic operation; counts it.
void begin_atomic(void* address);
/// After it, under the thread sanitizer; see fence_device.
void end_atomic(void* address);

struct AtomicScope {
  explicit AtomicScope(void* at) : address(at) { begin_atomic(address); }
#if defined(__SANITIZE_THREAD__)
  ~AtomicScope() {
    end_atomic(address);
  }
#endif
  void* address;
  AtomicScope(const AtomicScope&) = delete;
  AtomicScope& operator=(const AtomicScope&) = delete;
};

/// Replaces *address by change(*address). Returns the old value.
template <typename T, typename Change>
T change_atomically(T* address, Change change) {
  const AtomicScope scope(address);
  std::atomic_ref<T> target(*address);
  T old = target.load(std::memory_order_relaxed);
  while (!target.compare_exchange_weak(old, change(old), std::memory_order_relaxed)) {
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
  const tessera::emulation::AtomicScope scope(address);
  return std::atomic_ref<T>(*address).exchange(value, std::memory_order_relaxed);
}
template <typename T>
T atomicCAS(T* address, std::type_identity_t<T> compare, std::type_identity_t<T> value) {
  const tessera::emulation::AtomicScope scope(address);
  std::atomic_ref<T>(*address).compare_exchange_strong(compare, value, std::memory_order_relaxed);
  return compare;
}

/// Orders the accesses of two threads that use one atomic variable: accesses before a fence and an
/// atomic operation come before accesses after a later atomic operation and a fence. Both threads
/// need the fence. (Between threads of one block __threadfence_block is enough.)
inline void __threadfence() {
  tessera::emulation::fence_device();
}
inline void __threadfence_block() {
  tessera::emulation::fence_block();
}
