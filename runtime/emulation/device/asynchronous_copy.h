// cp.async: copies of 16 bytes from global to shared memory, while the thread goes on.
//
// The destination holds NaNs until the thread waits, and the copy is made at the wait. So a missing
// wait shows, and so does a buffer that is refilled while other threads still read it. To wgmma the copy is an
// ordinary write: it shows after the wait and a fence of the thread that copies (shared_memory.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <vector>

#include "runtime/emulation/device/accesses.h"

namespace tessera::emulation {

struct Copy {
  void* shared;
  const void* global;
  unsigned bytes;  // at most 16; the other bytes become zero
};

/// The copies that a thread has not waited for, in groups, oldest first.
class PendingCopies {
 public:
  bool empty() const { return copies_.empty(); }
  void clear();
  void add(const Copy& copy);
  void commit();
  /// Takes the next copy to be made so that at most `groups` groups stay in flight; false if there
  /// is no such copy.
  bool take(unsigned groups, Copy& copy);

 private:
  std::vector<Copy> copies_;
  std::vector<std::size_t> ends_;  // of the committed groups, in copies_
  std::size_t made_ = 0;           // of copies_
};

void begin_copy(const Copy& copy, const std::source_location& site);
void commit_copies();
bool take_copy(unsigned groups, Copy& copy);

// The accesses are compiled with the kernel, so sanitizers see them.

inline void copy_async(void* shared, const void* global, unsigned bytes,
                       const std::source_location& site = std::source_location::current()) {
  begin_copy({shared, global, bytes}, site);
  const Unnoted unnoted;
  auto* words = static_cast<std::uint64_t*>(shared);
  words[0] = words[1] = ~std::uint64_t{0};
}

inline void copy_async_wait(unsigned groups) {
  Copy copy;
  while (take_copy(groups, copy)) {
    const Unnoted unnoted;
    auto* to = static_cast<unsigned char*>(copy.shared);
    const auto* from = static_cast<const unsigned char*>(copy.global);
    for (unsigned i = 0; i < 16; ++i) to[i] = i < copy.bytes ? from[i] : 0;
  }
}

}  // namespace tessera::emulation
