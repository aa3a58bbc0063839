// What the emulator tells the sanitizers. Builds without them compile this to nothing.
//
// The emulator's own sources are not instrumented for the thread sanitizer (cmake/cuda.cmake): to
// it every CUDA thread is a thread, and only the kernel's accesses count, ordered only by what
// orders them on a GPU. Allocating and freeing it watches all the same; Unobserved hides those.
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

/// All that this thread did so far comes before what others do after acquire(point).
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

/// While it lives, the thread sanitizer looks away.
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

/// Accesses to poisoned memory end the program with the address sanitizer's report.
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
