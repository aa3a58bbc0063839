// Which thread block of a kernel is the last to finish.
#pragma once

#include "kernels/cuda/language.h"

namespace tessera::gpu {

/// Whether the block is the last of `count` that call this with a ticket (cuda::tickets). What the others
/// wrote before is then visible. All threads of the block call it.
__device__ inline bool is_last_block(unsigned* ticket, unsigned count) {
  TESSERA_SHARED(bool, last, );
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(ticket, 1u) + 1 == count;
    if (last) atomicExch(ticket, 0u);
  }
  __syncthreads();
  __threadfence();
  return last;
}

}  // namespace tessera::gpu
