// Tells the address sanitizer which bytes of cached memory are in use.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace tessera {

/// Bytes behind every block that are not in use, so that the address sanitizer reports an access beyond
/// the end of a block, not one to its neighbour.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr std::size_t kGuardBytes = 64;
#else
inline constexpr std::size_t kGuardBytes = 0;
#endif

/// The bytes are not in use: from here on the address sanitizer reports every access.
inline void poison([[maybe_unused]] const void* data, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(data, bytes);
#endif
}

/// The bytes are in use again.
inline void unpoison([[maybe_unused]] const void* data, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(data, bytes);
#endif
}

/// The first `bytes` of a block are in use, the others are not.
inline void unpoison_first(const void* block, std::size_t bytes, std::size_t block_bytes) {
  unpoison(block, bytes);
  poison(static_cast<const std::byte*>(block) + bytes, block_bytes - bytes);
}

}  // namespace tessera
