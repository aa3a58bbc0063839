// Rings of tiles between the producer, which starts copies, and the consumers, which compute.
//
//             stage 0       stage 1       stage 0
//   full      tile 0 ->     tile 1 ->     tile 2 ->        consumers wait: the bytes are there
//   empty           <- read       <- read       <- read    the producer waits: all warps have read it
//
// Every stage has two barriers. Producer and consumers count tiles on their own, over all pieces and
// blocks of rows: tile i lies in stage i % stages and is in the barriers' phase i / stages.
#pragma once

#include "kernels/attention/cuda/hopper/tiles.h"
#include "kernels/attention/cuda/hopper/work.h"

namespace tessera::cuda::attention {

template <typename Tile, int kStages>
struct TileRing {
  using Element = typename Tile::Element;
  static constexpr std::size_t kBytes =
      std::size_t{kStages} * (Tile::kBytes + 2 * sizeof(gpu::Barrier));
  Tile tiles;  // the first of kStages
  gpu::Barrier* full;
  gpu::Barrier* empty;

  /// Tiles are carved first, so that they need no space between them.
  __device__ void take_tiles(gpu::TileMemory& shared) {
    tiles = {shared.take<Element>(kStages * Tile::kElements, 1024)};
  }
  __device__ void take_barriers(gpu::TileMemory& shared) {
    full = shared.take<gpu::Barrier>(2 * kStages);
    empty = full + kStages;
  }

  __device__ Tile tile(unsigned number) const {
    return {tiles.data + number % kStages * Tile::kElements};
  }
  __device__ static unsigned parity(unsigned number) { return number / kStages % 2; }

  __device__ void initialize() const {
    constexpr int kReaders = 4 * kConsumers;  // warps
    for (int stage = 0; stage < kStages; ++stage) {
      gpu::initialize(full[stage], 1);
      gpu::initialize(empty[stage], kReaders);
    }
  }

  // ---- The producer: one thread

  /// Waits until the tile's stage is free, and announces the tile's bytes and `more`.
  __device__ gpu::Barrier& begin_fill(unsigned number, int more = 0) const {
    gpu::wait(empty[number % kStages], parity(number) ^ 1);
    gpu::arrive_and_expect(full[number % kStages], Tile::kBytes + more);
    return full[number % kStages];
  }

  // ---- The consumers: all their threads

  __device__ Tile wait(unsigned number) const {
    gpu::wait(full[number % kStages], parity(number));
    return tile(number);
  }
  /// The warp has read the tile.
  __device__ void release(unsigned number) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) gpu::arrive(empty[number % kStages]);
  }
};

/// Carves the barriers of all rings, and initializes them. All threads call this.
template <typename... Rings>
__device__ void begin_rings(gpu::TileMemory& shared, Rings&... rings) {
  (rings.take_barriers(shared), ...);
  if (threadIdx.x == 0) {
    (rings.initialize(), ...);
    gpu::publish_barriers();
  }
  __syncthreads();
}

/// Calls produce() with one thread, and consume() with the consumers' threads. The consumers have the
/// registers that the producer gives up: 24 + 2 * 240 of 3 * 168.
template <typename Produce, typename Consume>
__device__ void run_roles(Produce produce, Consume consume) {
  if (threadIdx.x < gpu::kWarpgroup) {
    gpu::lower_registers<24>();
    if (threadIdx.x < 32 && gpu::elect_lane()) produce();
  } else {
    gpu::raise_registers<240>();
    consume();
  }
}

/// A consumer's place in the block's rows.
struct ConsumerRows {
  int group = static_cast<int>(threadIdx.x / gpu::kWarpgroup) - 1;  // 0 or 1

  __device__ int first() const { return 64 * group; }
  /// The warp's first row, of the consumer's and of the block's.
  __device__ static int of_warp() { return static_cast<int>(threadIdx.x / 32 % 4) * 16; }
  __device__ int warp_of_block() const { return first() + of_warp(); }
};

/// Makes rows from `first` on zeros in all of the tiles, for both consumers. All their threads call
/// this, and may have written to shared memory themselves.
template <typename... Tiles>
__device__ void clear_rows(int first, const Tiles&... tiles) {
  constexpr int kThreads = kConsumers * gpu::kWarpgroup;
  (tiles.clear_rows(first, static_cast<int>(threadIdx.x) - gpu::kWarpgroup, kThreads), ...);
  gpu::fence_shared_for_engines();
  gpu::named_sync(1, kThreads);
}

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
  __device__ void wait() const { gpu::named_sync(2 + group, kConsumers * gpu::kWarpgroup); }
  __device__ void pass() const { gpu::named_arrive(3 - group, kConsumers * gpu::kWarpgroup); }
};

}  // namespace tessera::cuda::attention
