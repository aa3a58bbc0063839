// The addresses whose accesses are counted: a quick test before every load and store.
#pragma once

#include <atomic>
#include <cstdint>

namespace tessera::emulation {

struct AddressRange {
  std::atomic<std::uintptr_t> begin{0}, end{0};

  void set(std::uintptr_t first, std::uintptr_t last) { begin = first, end = last; }
  bool has(std::uintptr_t address) const {
    return address >= begin.load(std::memory_order_relaxed) &&
           address < end.load(std::memory_order_relaxed);
  }
};
inline AddressRange shared_addresses;  // used by a block or not
inline AddressRange global_addresses;  // from the first of all devices' to the last

/// False for a stack, a kernel's parameters, constants.
inline bool may_be_counted(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  return shared_addresses.has(at) || global_addresses.has(at);
}

}  // namespace tessera::emulation
