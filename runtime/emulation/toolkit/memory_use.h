// Memory that recorded work uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::emulation {

/// A block that must exist at every launch of a graph.
struct MemoryUse {
  const void* data;
  std::size_t bytes;
  std::uint64_t block;  // DeviceMemory::Block::number; 0: pinned memory of the host
};

/// Raises Error if a block was freed since its use was recorded. The caller holds the lock of Devices.
void check_uses(const std::vector<MemoryUse>& uses);

}  // namespace tessera::emulation
