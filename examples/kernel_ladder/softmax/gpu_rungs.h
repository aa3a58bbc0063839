// The rungs of the ladder of softmaxes for a GPU.
#pragma once

#include "examples/kernel_ladder/softmax/rungs.h"

namespace tessera::kernel_ladder::softmax {

// The arrays are in the GPU's memory. The kernels go to the current stream.
void thread_per_row(const Softmax& p);
void warp_per_row(const Softmax& p);
/// For rows of at most 1,024 columns, a multiple of 4, and arrays aligned to 16 bytes.
void row_in_registers(const Softmax& p);

inline constexpr Rung<Softmax> kGpuRungs[] = {
    {"thread_per_row", thread_per_row},
    {"warp_per_row", warp_per_row},
    {"row_in_registers", row_in_registers},
};

}  // namespace tessera::kernel_ladder::softmax
