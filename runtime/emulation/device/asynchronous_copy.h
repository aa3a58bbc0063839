// cp.async: copies of 16 bytes from global to shared memory that happen while the thread goes on.
//
// Until the thread waits, the destination holds NaNs, and the copy is made only when it does: a
// missing wait shows, and so does a buffer that is refilled while others still read it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <vector>

namespace tessera::emulation {

struct Copy {
  void* shared;
  const void* global;
  unsigned bytes;  // of 16; the rest becomes zero
};

/// The copies of one thread that have not been waited for, oldest first, in groups.
class PendingCopies {
 public:
  bool empty() const { return copies_.empty(); }
  void clear();
  void add(const Copy& copy);
  void commit();
  /// The next copy that must be made before at most `groups` groups are in flight; false if none.
  bool take(unsigned groups, Copy& copy);

 private:
  std::vector<Copy> copies_;
  std::vector<std::size_t> ends_;  // of the committed groups, in copies_
  std::size_t made_ = 0;           // of copies_
};

void begin_copy(const Copy& copy, const std::source_location& site);
void commit_copies();
bool take_copy(unsigned groups, Copy& copy);

// The accesses themselves are the kernel's: they are compiled with it, where sanitizers see them.

inline void copy_async(void* shared, const void* global, unsigned bytes,
                       const std::source_location& site = std::source_location::current()) {
  begin_copy({shared, global, bytes}, site);
  auto* words = static_cast<std::uint64_t*>(shared);
  words[0] = words[1] = ~std::uint64_t{0};
}

inline void copy_async_wait(unsigned groups) {
  Copy copy;
  while (take_copy(groups, copy)) {
    auto* to = static_cast<unsigned char*>(copy.shared);
    const auto* from = static_cast<const unsigned char*>(copy.global);
    for (unsigned i = 0; i < 16; ++i) to[i] = i < copy.bytes ? from[i] : 0;
  }
}

}  // namespace tessera::emulation
