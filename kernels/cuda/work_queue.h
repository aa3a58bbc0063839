// A queue of pieces of work for a persistent grid (sm_90a): the thread block that is free takes the next.
//
// Pieces have numbers, the longest first. The producer draws: a counter in memory gives every draw the
// next number. So all thread blocks end at about the same time, however long the pieces take, and one that
// starts late, because a collective of NCCL held its multiprocessor, finds only the tiles that are left. Its first
// piece, too, must be drawn: the longest one would begin when all others end. Which thread block has a
// piece differs from run to run, so no result may depend on it. The producer tells the consumers the
// numbers:
//
//   producer     draws 0 | draws 5 | draws 9 | draws none left         loads the pieces' tiles
//   consumers              0         5         9
//
// A cluster of blocks works at one piece together: its first block draws, and tells the readers of all.
#pragma once

#include "kernels/cuda/cluster.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/tile_ring.h"

namespace tessera::gpu {

/// The numbers on their way from the producer to their readers: the consumers, and the epilogue where there
/// is one.
struct NumberRing {
  static constexpr int kStages = 2;
  static constexpr std::size_t kBytes = kStages * (sizeof(uint2) + 2 * sizeof(Barrier));
  uint2* numbers;  // .x; pairs keep the barriers aligned
  Barrier* full;
  Barrier* empty;
  int readers = kConsumerThreads;  // threads that take each number

  __device__ void take_barriers(TileMemory& shared) {
    numbers = shared.take<uint2>(kStages);
    full = shared.take<Barrier>(2 * kStages);
    empty = full + kStages;
  }
  __device__ void initialize() const { initialize(readers); }
  __device__ void initialize(int releases) const {
    for (int stage = 0; stage < kStages; ++stage) {
      gpu::initialize(full[stage], 1);
      gpu::initialize(empty[stage], releases);
    }
  }
  __device__ static unsigned parity(unsigned place) { return place / kStages % 2; }

  /// By the producer's thread: the number in this place of the thread block's sequence.
  __device__ void put(unsigned place, unsigned number) const {
    gpu::wait(empty[place % kStages], parity(place) ^ 1);
    numbers[place % kStages].x = number;
    gpu::arrive(full[place % kStages]);
  }
  /// By each reader.
  __device__ unsigned take(unsigned place) const {
    gpu::wait(full[place % kStages], parity(place));
    const unsigned number = numbers[place % kStages].x;
    gpu::arrive(empty[place % kStages]);
    return number;
  }
};

/// The same from the first block's producer to the readers of a cluster, among them the other producers.
struct ClusterNumberRing : NumberRing {
  __device__ void initialize() const {
    const int blocks = static_cast<int>(blocks_of_cluster());
    NumberRing::initialize(blocks * (readers + 1) - 1);
  }
  /// By the first block.
  __device__ void put(unsigned place, unsigned number) const {
    wait_for_cluster(empty[place % kStages], parity(place) ^ 1);
    for (unsigned block = 0; block < blocks_of_cluster(); ++block) {
      in_block(numbers, block)[place % kStages].x = number;
      arrive(full[place % kStages], block);
    }
  }
  __device__ unsigned take(unsigned place) const {
    wait_for_cluster(full[place % kStages], parity(place));
    const unsigned number = numbers[place % kStages].x;
    arrive(empty[place % kStages], 0u);
    return number;
  }
};

struct WorkQueue {
  unsigned count;   // pieces
  unsigned* draws;  // cuda::tickets: the draws so far

  /// By the producer's thread: f(number, place) for each of the thread block's pieces; `place` counts
  /// them.
  template <typename F>
  __device__ void produce(const NumberRing& ring, F f) const {
    for (unsigned place = 0;; ++place) {
      const unsigned number = draw([] { return thread_blocks(); });
      ring.put(place, number);
      if (number >= count) return;
      f(number, place);
    }
  }
  /// By a warp of each producer of the cluster: f(number) for the same, on all lanes.
  template <typename F>
  __device__ void produce_by_warp(const ClusterNumberRing& ring, F f) const {
    for (unsigned place = 0;; ++place) {
      unsigned number = 0;
      if (threadIdx.x % 32 == 0 && block_in_cluster() > 0) {
        number = ring.take(place);
      } else if (threadIdx.x % 32 == 0) {
        number = draw([] { return thread_blocks() / blocks_of_cluster(); });
        ring.put(place, number);
      }
      number = __shfl_sync(kFullWarp, number, 0);
      if (number >= count) return;
      f(number);
    }
  }
  /// By each reader: the same pieces.
  template <typename Ring, typename F>
  __device__ void consume(const Ring& ring, F f) const {
    for (unsigned place = 0;; ++place) {
      const unsigned number = ring.take(place);
      if (number >= count) return;
      f(number, place);
    }
  }

 private:
  /// The next number. Each of producers() producers draws once in vain, so the draw after
  /// count + producers() - 1 others is the last of all.
  template <typename Producers>
  __device__ unsigned draw(Producers producers) const {
    const unsigned drawn = atomicAdd(draws, 1u);
    if (drawn + 1 == count + producers()) atomicExch(draws, 0u);
    return drawn;
  }
  /// gridDim.x, read here: the producer has no register to keep it in.
  __device__ static unsigned thread_blocks() {
#if defined(__CUDACC__)
    unsigned blocks;
    asm volatile("mov.u32 %0, %%nctaid.x;" : "=r"(blocks));
    return blocks;
#else
    return gridDim.x;
#endif
  }
};

}  // namespace tessera::gpu
