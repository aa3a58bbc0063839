// The host's calls to the emulated devices, by kind.
#pragma once

#include <cstdint>

namespace tessera::emulation {

/// Calls so far, of all threads. A captured call is counted at the capture; a graph's launch is one call.
struct HostCalls {
  std::uint64_t launches = 0;     // of kernels, of cuBLASLt's products and of functions of the host
  std::uint64_t copies = 0;       // and fills
  std::uint64_t events = 0;       // recorded, or waited for by a stream
  std::uint64_t collectives = 0;  // operations of NCCL
  std::uint64_t graphs = 0;       // launches of graphs
  /// Calls that made the host wait: for a stream, a device, an event that has not passed, and copies
  /// with pageable memory.
  std::uint64_t waits = 0;

  /// The calls that give work to a device: all but waits.
  std::uint64_t work() const { return launches + copies + events + collectives + graphs; }
};

HostCalls host_calls_by_kind();

}  // namespace tessera::emulation
