// The most floating-point operations that a core of this CPU can do.
#pragma once

#include "kernels/matmul/cpu/isa.h"
#include "runtime/dtype.h"

namespace tessera {

/// Cycles per second of the calling thread's core, measured: an addition that waits for the last one
/// takes one cycle. The fastest of ten runs, some 60 ms in all.
double clock_rate();

/// Floating-point operations per cycle and core with two units for vectors; 0 where they are not
/// known.
double operations_per_cycle(cpu::Isa isa, DType dtype);

}  // namespace tessera
