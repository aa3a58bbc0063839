// The rungs of the ladder of attention for a GPU.
#pragma once

#include "examples/kernel_ladder/attention/rungs.h"

namespace tessera::kernel_ladder::attention {

/// D, for the rungs with tiles.
inline constexpr std::int64_t kGpuChannels = 64;

// The arrays are in the GPU's memory, and for the rungs with tiles aligned to 16 bytes. The kernels
// go to the current stream.
void thread_per_query(const Attention& p);
void shared_tiles(const Attention& p);
/// Rounds q, k, v and the weights to bf16. Sums are in f32.
void tensor_cores(const Attention& p);

struct GpuRung : Rung<Attention> {
  bool rounds_to_bf16 = false;
};

inline constexpr GpuRung kGpuRungs[] = {
    {{"thread_per_query", thread_per_query}},
    {{"shared_tiles", shared_tiles}},
    {{"tensor_cores", tensor_cores}, true},
};

}  // namespace tessera::kernel_ladder::attention
