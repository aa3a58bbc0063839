// The accesses to memory of the rungs for a GPU, counted by the emulator.
#pragma once

#include <string>
#include <vector>

#include "examples/kernel_ladder/rung.h"
#include "runtime/context.h"
#include "runtime/emulation/device/emulator.h"

namespace tessera::kernel_ladder {

/// The work of a rung's launches.
struct Counted {
  std::string rung;
  emulation::Statistics work;
};

/// Runs a rung once. Its accesses are counted in programs that link counted_kernel_ladder, and are
/// zero in others.
template <typename Problem>
Counted count(const Rung<Problem>& rung, const Problem& problem) {
  current_stream().synchronize();
  emulation::reset_statistics();
  rung.run(problem);
  current_stream().synchronize();
  return {rung.name, emulation::statistics()};
}

/// Prints a line for each rung: sectors of global memory read and written, the first over the least
/// possible, instructions that access shared memory, their bank conflicts, and matrix instructions.
/// The least that a rung can read or write are the sectors that the most frugal rung touches, each
/// once.
void print_counts(const std::vector<Counted>& rungs);

/// The same for rungs whose tiles the copy engine may load: bytes read from the second-level cache, over the least
/// possible; bytes written; thread blocks; instructions of warps that copy 16 bytes a lane or a tile; those that
/// access shared memory, and their bank conflicts; matrix instructions of a warp and of a warpgroup.
void print_counts_of_tiles(const std::vector<Counted>& rungs);

}  // namespace tessera::kernel_ladder
