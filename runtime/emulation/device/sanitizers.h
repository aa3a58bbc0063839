// The emulator's calls to the sanitizers. They are empty in builds without sanitizers.
//
// To the thread sanitizer every CUDA thread is a thread. The emulator's own sources are not
// instrumented (cmake/cuda.cmake), so it sees only the kernel's accesses and only the orders that
// exist on a GPU. It still sees the emulator's allocations; Unobserved hides those.
#pragma once

#include <cstddef>

#if defined(TESSERA_EMULATION_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(TESSERA_EMULATION_TSAN)
#include <sanitizer/tsan_interface.h>
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace tessera::emulation {

#if defined(TESSERA_EMULATION_TSAN)
inline constexpr bool kRacesAreWatched = true;
#else
inline constexpr bool kRacesAreWatched = false;
#endif

/// Does a sanitizer look at each access of a kernel?
#if defined(TESSERA_EMULATION_ASAN)
inline constexpr bool kAccessesAreWatched = true;
#else
inline constexpr bool kAccessesAreWatched = kRacesAreWatched;
#endif

/// This thread's accesses so far come before those of other threads after acquire(point).
inline void publish([[maybe_unused]] void* point) {
#if defined(TESSERA_EMULATION_TSAN)
  __tsan_release(point);
#endif
}
inline void acquire([[maybe_unused]] void* point) {
#if defined(TESSERA_EMULATION_TSAN)
  __tsan_acquire(point);
#endif
}

/// Suppresses thread-sanitizer tracking of this thread for the scope.
struct Unobserved {
#if defined(TESSERA_EMULATION_TSAN)
  Unobserved() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~Unobserved() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
#else
  Unobserved() {}
#endif
  Unobserved(const Unobserved&) = delete;
  Unobserved& operator=(const Unobserved&) = delete;
};

/// The address sanitizer ends the program at an access to poisoned memory.
inline void poison([[maybe_unused]] const void* data, [[maybe_unused]] std::size_t bytes) {
#if defined(TESSERA_EMULATION_ASAN)
  __asan_poison_memory_region(data, bytes);
#endif
}
inline void unpoison([[maybe_unused]] const void* data, [[maybe_unused]] std::size_t bytes) {
#if defined(TESSERA_EMULATION_ASAN)
  __asan_unpoison_memory_region(data, bytes);
#endif
}

}  // namespace tessera::emulation
