// Multiprocessors that another kernel holds, such as one of NCCL.
//
// A grid that has a thread block for each multiprocessor finds some of them taken. So many of its thread
// blocks run when all others have ended. Thread blocks run one after another here: those that run last
// are the late ones.
#pragma once

#include <cstdint>

namespace tessera::emulation {

/// Later launches of the process find so many multiprocessors held.
void hold_multiprocessors(unsigned count);

/// The work of a launch in warpgroup products (wgmma).
struct HeldLaunch {
  unsigned early_blocks = 0;
  std::uint64_t early = 0;         // of the early thread blocks together
  std::uint64_t longest_late = 0;  // of the late thread block that has most

  /// The time of the launch if each thread block takes as long as its work, and the early ones share
  /// theirs evenly.
  std::uint64_t length() const { return (early + early_blocks - 1) / early_blocks + longest_late; }
};
/// The last launch that had late thread blocks, and early ones.
HeldLaunch last_held_launch();

}  // namespace tessera::emulation
