// Rings of tiles between the producer, which starts copies, and the consumers, which compute (sm_90a).
//
//             stage 0       stage 1       stage 0
//   full      tile 0 ->     tile 1 ->     tile 2 ->        consumers wait: the bytes are there
//   empty           <- read       <- read       <- read    the producer waits: all threads have read it
//
// Every stage has two barriers. Producer and consumers count tiles on their own, over all of a thread
// block's work: tile i lies in stage i % stages and is in the barriers' phase i / stages.
#pragma once

#include <cstddef>

#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/hopper.h"
#include "kernels/cuda/numeric.h"

namespace tessera::gpu {

/// A thread block is a producer and two consumers, each a warpgroup.
inline constexpr int kConsumers = 2, kConsumerThreads = kConsumers * kWarpgroup;
inline constexpr int kRoleThreads = kWarpgroup + kConsumerThreads;
/// An epilogue takes the producer's warps but the first.
inline constexpr int kEpilogueThreads = kWarpgroup - 32;

template <typename Tile, int kStages>
struct TileRing {
  using Element = typename Tile::Element;
  static constexpr int kCount = kStages;
  static constexpr std::size_t kBytes =
      std::size_t{kStages} * (Tile::kElements * sizeof(Element) + 2 * sizeof(Barrier));
  Tile tiles;  // the first of kStages
  Barrier* full;
  Barrier* empty;

  /// Tiles are carved first, so that they need no space between them.
  __device__ void take_tiles(TileMemory& shared) {
    tiles = {shared.take<Element>(kStages * Tile::kElements, 1024)};
  }
  __device__ void take_barriers(TileMemory& shared) {
    full = shared.take<Barrier>(2 * kStages);
    empty = full + kStages;
  }

  __device__ Tile tile(unsigned number) const {
    return {tiles.data + number % kStages * Tile::kElements};
  }
  __device__ static unsigned parity(unsigned number) { return number / kStages % 2; }

  /// So many arrivals release a stage, and so many, besides the copies' bytes, fill it.
  __device__ void initialize(int releases = kConsumerThreads, int fills = 1) const {
    for (int stage = 0; stage < kStages; ++stage) {
      gpu::initialize(full[stage], fills);
      gpu::initialize(empty[stage], releases);
    }
  }

  // ---- The producer: one thread

  /// Waits until the tile's stage is free, and announces the tile's bytes and `more`.
  __device__ Barrier& begin_fill(unsigned number, int more = 0) const {
    gpu::wait(empty[number % kStages], parity(number) ^ 1);
    gpu::arrive_and_expect(full[number % kStages], Tile::kBytes + more);
    return full[number % kStages];
  }

  /// Threads that fill a part of the tile themselves arrive here.
  __device__ Barrier& filled(unsigned number) const { return full[number % kStages]; }

  // ---- The consumers: all their threads

  __device__ Tile wait(unsigned number) const {
    gpu::wait(full[number % kStages], parity(number));
    return tile(number);
  }
  /// The thread has read the tile. (One arrival for a warp, after __syncwarp, is not faster, and
  /// compute-sanitizer's racecheck does not follow it.)
  __device__ void release(unsigned number) const { gpu::arrive(empty[number % kStages]); }
};

/// Carves the barriers of all rings, and initializes them. Waits for the launch ahead. All threads call this.
template <typename... Rings>
__device__ void begin_rings(TileMemory& shared, Rings&... rings) {
  (rings.take_barriers(shared), ...);
  if (threadIdx.x == 0) {
    (rings.initialize(), ...);
    publish_barriers();
  }
  __syncthreads();
  wait_for_launch_ahead();
}

/// Calls produce() with one warp, and consume() with the consumers' threads. The consumers have the
/// registers that the producer gives up: of 3 * 168, 24 + 2 * 240, or 40 + 2 * 232.
template <int kOfProducer = 24, typename Produce, typename Consume>
__device__ void run_warp_roles(Produce produce, Consume consume) {
  if (threadIdx.x < kWarpgroup) {
    lower_registers<kOfProducer>();
    if (threadIdx.x < 32) produce();
  } else {
    raise_registers<(3 * 168 - kOfProducer) / 2>();
    consume();
  }
}
/// The same, and finish() with the epilogue's threads: 120 + 2 * 192 registers. (The epilogue is no warpgroup
/// of its own, because a block of 512 threads starts with 128 registers each, and ptxas refuses wgmma of 256
/// columns in a kernel of less than 154.)
template <typename Produce, typename Consume, typename Finish>
__device__ void run_warp_roles(Produce produce, Consume consume, Finish finish) {
  if (threadIdx.x < kWarpgroup) {
    lower_registers<120>();
    threadIdx.x < 32 ? produce() : finish();
  } else {
    raise_registers<192>();
    consume();
  }
}
/// The first one, with one thread for produce().
template <int kOfProducer = 24, typename Produce, typename Consume>
__device__ void run_roles(Produce produce, Consume consume) {
  const auto produce_alone = [&] {
    if (elect_lane()) produce();
  };
  run_warp_roles<kOfProducer>(produce_alone, consume);
}

/// A consumer's place in the block's rows.
struct ConsumerRows {
  int group = static_cast<int>(unhoisted(threadIdx.x) / kWarpgroup) - 1;  // 0 or 1

  __device__ int first() const { return 64 * group; }
  /// The warp's first row, of the consumer's and of the block's.
  __device__ static int of_warp() { return static_cast<int>(threadIdx.x / 32 % 4) * 16; }
  __device__ int warp_of_block() const { return first() + of_warp(); }
};

/// Makes rows from `first` on zeros in all of the tiles, for both consumers. All their threads call
/// this, and may have written to shared memory themselves.
template <typename... Tiles>
__device__ void clear_rows(int first, const Tiles&... tiles) {
  (tiles.clear_rows(first, static_cast<int>(threadIdx.x) - kWarpgroup, kConsumerThreads), ...);
  fence_shared_for_engines();
  named_sync(1, kConsumerThreads);
}

}  // namespace tessera::gpu
