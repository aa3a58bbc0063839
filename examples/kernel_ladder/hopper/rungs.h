// The rungs of the ladder of products on Hopper.
#pragma once

#include "examples/kernel_ladder/matmul/gpu_rungs.h"
#include "examples/kernel_ladder/rung.h"

namespace tessera::kernel_ladder::hopper {

// For K and N that are multiples of 8, M, N and K below 2^31, and arrays in the GPU's memory that are aligned to
// 16 bytes. The kernels go to the current stream, on a GPU with Hopper's instructions (gpu::has_hopper). All rungs
// have the same bits, but for matmul::tensor_cores, which comes before the first one.
void warpgroups(const Product<bfloat16>& p);
void ring(const Product<bfloat16>& p);
void queue(const Product<bfloat16>& p);
void epilogue(const Product<bfloat16>& p);
void cluster(const Product<bfloat16>& p);

inline constexpr Rung<Product<bfloat16>> kRungs[] = {
    {"warpgroups", warpgroups}, {"ring", ring},       {"queue", queue},
    {"epilogue", epilogue},     {"cluster", cluster},
};

}  // namespace tessera::kernel_ladder::hopper
