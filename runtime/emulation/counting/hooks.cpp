// The calls before every load and store of kernels that are compiled to be counted.
//
// GCC's -fsanitize=thread inserts them. In a program with counted kernels they note the access
// (device/accesses.h) in place of the thread sanitizer's library, which is not linked. The return
// address is the place of the access in the program.
#include <cstdint>

#include "runtime/emulation/device/accesses.h"
#include "runtime/emulation/device/counted_addresses.h"

namespace {

inline void note(const void* address, std::size_t bytes, bool is_write, const void* place) {
  if (tessera::emulation::may_be_counted(address)) {
    tessera::emulation::note_access(address, bytes, is_write, place);
  }
}

}  // namespace

#define PLACE __builtin_return_address(0)

extern "C" {

// Every counted file's constructor calls this.
void __tsan_init() {
  tessera::emulation::accesses_are_counted = true;
}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

#define ACCESSES(bytes)                          \
  void __tsan_read##bytes(void* at) {            \
    note(at, bytes, false, PLACE);               \
  }                                              \
  void __tsan_write##bytes(void* at) {           \
    note(at, bytes, true, PLACE);                \
  }                                              \
  void __tsan_unaligned_read##bytes(void* at) {  \
    note(at, bytes, false, PLACE);               \
  }                                              \
  void __tsan_unaligned_write##bytes(void* at) { \
    note(at, bytes, true, PLACE);                \
  }
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

void __tsan_read_range(void* at, std::size_t bytes) {
  note(at, bytes, false, PLACE);
}
void __tsan_write_range(void* at, std::size_t bytes) {
  note(at, bytes, true, PLACE);
}

// Atomic operations are counted by the emulator (device/atomics.h). Here they are only carried out.
#define ATOMICS(bits, T)                                                                         \
  T __tsan_atomic##bits##_load(const volatile void* at, int) {                                   \
    return __atomic_load_n(static_cast<const volatile T*>(at), __ATOMIC_SEQ_CST);                \
  }                                                                                              \
  void __tsan_atomic##bits##_store(volatile void* at, T value, int) {                            \
    __atomic_store_n(static_cast<volatile T*>(at), value, __ATOMIC_SEQ_CST);                     \
  }                                                                                              \
  T __tsan_atomic##bits##_exchange(volatile void* at, T value, int) {                            \
    return __atomic_exchange_n(static_cast<volatile T*>(at), value, __ATOMIC_SEQ_CST);           \
  }                                                                                              \
  T __tsan_atomic##bits##_fetch_add(volatile void* at, T value, int) {                           \
    return __atomic_fetch_add(static_cast<volatile T*>(at), value, __ATOMIC_SEQ_CST);            \
  }                                                                                              \
  T __tsan_atomic##bits##_fetch_sub(volatile void* at, T value, int) {                           \
    return __atomic_fetch_sub(static_cast<volatile T*>(at), value, __ATOMIC_SEQ_CST);            \
  }                                                                                              \
  bool __tsan_atomic##bits##_compare_exchange_strong(volatile void* at, void* expected, T value, \
                                                     int, int) {                                 \
    return __atomic_compare_exchange_n(static_cast<volatile T*>(at), static_cast<T*>(expected),  \
                                       value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);        \
  }                                                                                              \
  bool __tsan_atomic##bits##_compare_exchange_weak(volatile void* at, void* expected, T value,   \
                                                   int, int) {                                   \
    return __tsan_atomic##bits##_compare_exchange_strong(at, expected, value, 0, 0);             \
  }
ATOMICS(8, std::uint8_t)
ATOMICS(16, std::uint16_t)
ATOMICS(32, std::uint32_t)
ATOMICS(64, std::uint64_t)

void __tsan_atomic_thread_fence(int) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void __tsan_atomic_signal_fence(int) {}

}  // extern "C"
