// The order of attention's producer and consumers (sm_90a). Tiles go from one to the others in rings
// (kernels/cuda/tile_ring.h). docs/kernels/attention_hopper.md draws the pipeline.
#pragma once

#include "kernels/attention/cuda/hopper/tiles.h"
#include "kernels/attention/cuda/hopper/work.h"

namespace tessera::cuda::attention {

/// The consumers take turns: while one has the tensor cores, the other computes a softmax. Each waits
/// at its own barrier and then lets the other one go.
struct Turns {
  int group;

  /// Before the first turn, and after the last: every arrival has its wait.
  __device__ void begin() const {
    if (group == 1) pass();
  }
  __device__ void end() const {
    if (group == 0) wait();
  }
  __device__ void wait() const { gpu::named_sync(2 + group, gpu::kConsumerThreads); }
  __device__ void pass() const { gpu::named_arrive(3 - group, gpu::kConsumerThreads); }
};

}  // namespace tessera::cuda::attention
