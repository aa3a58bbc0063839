// Emulated device memory: one range of addresses per device.
//
// The host cannot touch the range except while the device works. Under the address sanitizer an
// overrun of a block by one byte is an error. New memory reads as 0xff: NaN as a float.
//
// Callers hold the lock of Devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace tessera::emulation {

class DeviceMemory {
 public:
  struct Block {
    std::byte* data;
    std::size_t bytes;
    int device;
    std::uint64_t number;  // no two blocks have the same, also when addresses repeat
  };

  /// Null if fewer than `bytes` are left of `limit`.
  void* allocate(int device, std::size_t bytes, std::size_t limit);
  /// `data` is the beginning of a block.
  void release(void* data);
  /// The block that `data` lies in, or null.
  const Block* find(const void* data) const;
  /// Is `data` an address of device memory, allocated or not?
  bool covers(const void* data) const;

  std::size_t blocks() const { return blocks_.size(); }
  std::size_t bytes() const;

  /// From here on the calling thread may touch the memory of the devices in the set (bit i: device
  /// i) and of no other device. `of_early_launch`: the thread runs a launch up to its wait (device/early.h).
  void open(unsigned devices, bool of_early_launch = false);
  void close() { open(0); }

 private:
  struct Arena {
    std::byte* begin = nullptr;
    std::byte* cursor = nullptr;  // the search for the next block starts here
    std::byte* top = nullptr;     // the end of all memory ever handed out
    std::byte* open_to = nullptr;
    std::size_t live_bytes = 0;
  };
  Arena& arena(int device);
  std::byte* place_for(const Arena& arena, std::size_t bytes) const;

  std::vector<std::unique_ptr<Arena>> arenas_;
  std::map<std::byte*, Block> blocks_;
  std::uint64_t allocated_ = 0;
};

}  // namespace tessera::emulation
