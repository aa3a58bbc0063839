// Rings of tiles that the two blocks of a cluster fill together (sm_90a).
//
// Each block has a ring (tile_ring.h), and tile i is in the same stage of both. Each producer copies a part of
// the tile to both blocks. So a stage is free when the consumers of both have read it:
//
//   producer of block 0   --- a0, half of b --->  full of block 0, and the half's bytes: full of block 1
//   consumers of block 0  --- have read both --->  empty of block 0 (each thread) and 1 (a lane of a warp)
//
// In a cluster of one block, the rings are those of tile_ring.h.
#pragma once

#include "kernels/cuda/cluster.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/tile_ring.h"

namespace tessera::gpu {

/// A stage is filled by Tile::kBytes of copies and kFills arrivals, one of which announces the bytes.
template <typename Tile, int kStages, int kFills = 1>
struct ClusterRing : TileRing<Tile, kStages> {
  using Ring = TileRing<Tile, kStages>;

  __device__ void initialize() const {
    const int others = static_cast<int>(blocks_of_cluster()) - 1;
    Ring::initialize(kConsumerThreads + others * kConsumerThreads / 32, kFills);
  }

  /// By the producer's thread: waits until the stage is free in both blocks, and announces the bytes that are
  /// copied to the own one.
  __device__ Barrier& begin_fill(unsigned number) const {
    Barrier& full = this->full[number % kStages];
    wait_for_cluster(this->empty[number % kStages], Ring::parity(number) ^ 1);
    arrive_and_expect(full, Tile::kBytes);
    return full;
  }
  /// By all consumers' threads.
  __device__ void release(unsigned number) const {
    Ring::release(number);
    if (blocks_of_cluster() == 1) return;
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(this->empty[number % kStages], block_in_cluster() ^ 1);
  }
};

}  // namespace tessera::gpu
