// The rungs of the ladder of RMS norms for a GPU.
#pragma once

#include "examples/kernel_ladder/norm/rungs.h"

namespace tessera::kernel_ladder::norm {

// The arrays are in the GPU's memory. The kernels go to the current stream.
void thread_per_row(const Norm& p);
void warp_per_row(const Norm& p);
/// For rows of at most 1,024 columns, a multiple of 4, and arrays aligned to 16 bytes.
void row_in_registers(const Norm& p);

inline constexpr Rung<Norm> kGpuRungs[] = {
    {"thread_per_row", thread_per_row},
    {"warp_per_row", warp_per_row},
    {"row_in_registers", row_in_registers},
};

}  // namespace tessera::kernel_ladder::norm
