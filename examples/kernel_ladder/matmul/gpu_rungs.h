// The rungs of the ladder of matrix products for a GPU.
#pragma once

#include "examples/kernel_ladder/matmul/rungs.h"

namespace tessera::kernel_ladder::matmul {

// The arrays are in the GPU's memory, and Product::scratch is not used. The kernels go to the current
// stream. All f32 rungs have the bits of three_loops.
void thread_per_element(const Product<float>& p);
void shared_tiles(const Product<float>& p);
/// For K and N that are multiples of 4, and arrays aligned to 16 bytes.
void tile_in_registers(const Product<float>& p);

inline constexpr MatmulRung kGpuRungs[] = {
    {"thread_per_element", thread_per_element},
    {"shared_tiles", shared_tiles},
    {"tile_in_registers", tile_in_registers},
};

/// The last rung. For K and N that are multiples of 8, and arrays aligned to 16 bytes.
void tensor_cores(const Product<bfloat16>& p);
inline constexpr Rung<Product<bfloat16>> kTensorCores{"tensor_cores", tensor_cores};

}  // namespace tessera::kernel_ladder::matmul
