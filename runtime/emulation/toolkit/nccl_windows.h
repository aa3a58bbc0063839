// Windows: device memory of ncclMemAlloc that the ranks of an emulated communicator may reach.
//
// Each rank registers memory, and has a handle with the addresses of all ranks' memory. A kernel may touch
// another device's memory only through such an address, in its parameters. Guarded by the lock of Devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <span>
#include <vector>

#include <nccl.h>

/// A rank's window.
struct ncclWindow_vidmem {
  const void* clique;
  std::uint64_t number;  // of the registration among the calls of the communicator
  int device;
  std::size_t bytes;
  std::vector<std::byte*> addresses;  // by rank
  std::vector<int> devices;           // by rank
  std::size_t rank;
  int reach;  // ranks that load and store directly: the LSA team; 0: none
};

namespace tessera::emulation {

class NcclWindows {
 public:
  static constexpr std::size_t kGranularity = std::size_t{2} << 20;

  void note_memory(void* data) { memory_.insert(data); }
  void forget_memory(void* data) { memory_.erase(data); }
  /// Is `data` the beginning of memory of ncclMemAlloc?
  bool is_memory(const void* data) const { return memory_.contains(const_cast<void*>(data)); }

  ncclWindow_t add(ncclWindow_vidmem window);
  bool is_live(ncclWindow_t window) const { return live_.contains(window); }
  void end(ncclWindow_t window) { live_.erase(window); }
  std::size_t count() const { return live_.size(); }
  /// The clique's communicator of the rank ends.
  void end_all(const void* clique, std::size_t rank);
  /// Whether the rank (any rank, of any clique) has a window that overlaps the bytes.
  bool has_window(const void* clique, std::size_t rank, const void* data, std::size_t bytes) const;
  bool has_window(const void* data) const;
  bool has_windows(const void* clique, std::size_t rank) const;
  /// The rank's window that the bytes lie in, or null.
  ncclWindow_t find(const void* clique, std::size_t rank, const void* data,
                    std::size_t bytes) const;

  /// The devices that a kernel of `device` with these words as parameters may touch, as bits.
  unsigned reached_by(int device, std::span<const std::uintptr_t> words) const;

 private:
  std::set<void*> memory_;
  // Handles are never freed, so the use of one that has ended is an error and not a crash.
  std::deque<ncclWindow_vidmem> all_;
  std::set<ncclWindow_t> live_;
};

}  // namespace tessera::emulation
