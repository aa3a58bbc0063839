// The GPUs that can be emulated and the limits in which they differ.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::emulation {

/// Source: "CUDA C++ Programming Guide", "Technical Specifications per Compute Capability".
struct Architecture {
  int capability = 90;  // 90 for sm_90
  /// Shared memory of one block, once the kernel has asked for it.
  std::size_t shared_bytes = 227 * 1024;
  std::size_t multiprocessor_shared_bytes = 228 * 1024;
};

inline constexpr Architecture kArchitectures[] = {
    {80, 163 * 1024, 164 * 1024},   // A100
    {86, 99 * 1024, 100 * 1024},    // A40, RTX 30
    {89, 99 * 1024, 100 * 1024},    // L4, L40, RTX 40
    {90, 227 * 1024, 228 * 1024},   // H100, H200
    {100, 227 * 1024, 228 * 1024},  // B200
    {120, 99 * 1024, 100 * 1024},   // RTX 50
};

/// Null if the architecture is not emulated.
constexpr const Architecture* find_architecture(int capability) {
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.capability == capability) return &architecture;
  }
  return nullptr;
}

/// The most that any of them has.
inline constexpr std::size_t kMostSharedBytes = 227 * 1024;
/// Blocks of a cluster (9.0 and later), and their warps together. Source: the same; the warps are the
/// emulator's limit.
inline constexpr unsigned kMostClusterBlocks = 8, kMostClusterWarps = 64;
/// Static and dynamic together, unless the kernel asks for more with cudaFuncSetAttribute. Static
/// declarations alone can never have more.
inline constexpr std::size_t kDefaultSharedBytes = 48 * 1024;

}  // namespace tessera::emulation
