// Kernels with known accesses to memory, compiled to be counted (tests.cmake).
#pragma once

#include "runtime/emulation/device/emulator.h"

namespace tessera::test {

/// A kernel's work on the 4,096 floats that it is given, one warp if not said otherwise.
enum class Pattern {
  neighbours,          // lane i reads and writes float i
  eighths,             // lane i reads float 8 i: a sector each
  vectors,             // lane i reads and writes 16 bytes
  fields,              // lane i writes the four fields of a float4
  halves,              // lane i reads 2 bytes
  shifted,             // lane i reads float i + 1
  alternating,         // even lanes read float 0, odd ones float 8
  same,                // all lanes read one float
  read_twice,          // and again after a barrier
  read_what_it_wrote,  // after a barrier
  early_exit,          // lanes 20 to 31 copy one float, the others two
  uneven_loop,         // lane i reads i % 4 + 1 rows of 32 floats
  uneven_chain,        // the same loop copies row i to row i + 1
  uneven_shift,        // and row i + 1 to row i
  shared_rows,         // shared memory: lane i writes float i
  shared_even,         // float 2 i
  shared_column,       // float 32 i
  shared_same,         // all lanes read one float
  shared_vectors,      // 16 bytes
  local_array,         // of the thread
  async_copies,        // 16 bytes by cp.async, 8 of them by the last lane
  atomics,             // two additions by each lane
  products,            // three mma.sync (the last: run_pattern counts up to it)
};

/// The counts of one launch. `data` must be aligned to 128 bytes, and global memory.
emulation::Statistics run_pattern(Pattern pattern, float* data);

}  // namespace tessera::test
