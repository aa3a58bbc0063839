// Clusters of thread blocks (sm_90a): barriers, each other's shared memory, copies to several blocks.
//
// The blocks of a cluster run at the same time on neighbouring multiprocessors. All launches have clusters,
// most of them of one block. A tile that several blocks read can come from the second-level cache once:
//
//   copy engine of block 0  --- b, upper half --->  block 0 and block 1      each block's Barrier "full"
//   copy engine of block 1  --- b, lower half --->  block 0 and block 1      counts both halves
//
// Source: PTX ISA 9.0, "barrier.cluster", "mapa", "mbarrier.arrive" and ".multicast::cluster".
#pragma once

#include "kernels/cuda/hopper.h"

#if !defined(__CUDACC__)
#include "runtime/emulation/device/cluster.h"
#endif

namespace tessera::gpu {

#if defined(__CUDACC__)

/// The block's rank in its cluster, and the cluster's blocks.
__device__ inline unsigned block_in_cluster() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ inline unsigned blocks_of_cluster() {
  unsigned blocks;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
  return blocks;
}

/// A barrier of all threads of the cluster. Writes to shared memory before are visible to all of them after.
__device__ inline void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

/// The same place in the shared memory of block `rank`. All blocks carve their memory alike. Calls of
/// sync_cluster come before the first use and after the last one.
template <typename T>
__device__ T* in_block(T* shared, unsigned rank) {
  T* place;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(place) : "l"(shared), "r"(rank));
  return place;
}
/// Arrives at the barrier of block `rank`. The threads that wait for it call wait_for_cluster.
__device__ inline void arrive(Barrier& barrier, unsigned rank) {
  asm volatile(
      "{\n.reg .b32 place;\n"
      "mapa.shared::cluster.u32 place, %0, %1;\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [place];\n}" ::"r"(
          shared_address(&barrier)),
      "r"(rank)
      : "memory");
}
/// wait(). The writes of the cluster's threads before their arrivals are visible.
__device__ inline void wait_for_cluster(Barrier& barrier, unsigned parity) {
  unsigned done = 0;
  while (done == 0) {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(shared_address(&barrier)), "r"(parity)
        : "memory");
  }
}

/// copy_tile() to each block i with bit i in `blocks`: to the same place of its shared memory. Its bytes
/// count for the same barrier of that block.
__device__ inline void copy_tile(void* shared, const TensorMap& map, const TilePlace& place,
                                 Barrier& barrier, std::uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(shared_address(shared)),
      "l"(&map), "r"(shared_address(&barrier)), "r"(place.channel), "r"(place.token),
      "r"(place.head), "r"(place.batch), "h"(blocks)
      : "memory");
}

#else

inline unsigned block_in_cluster() {
  return emulation::block_in_cluster();
}
inline unsigned blocks_of_cluster() {
  return emulation::blocks_of_cluster();
}
inline void sync_cluster(const Site& site = Site::current()) {
  emulation::arrive_at_cluster(site);
  emulation::wait_for_cluster(site);
}
template <typename T>
T* in_block(T* shared, unsigned rank, const Site& site = Site::current()) {
  return static_cast<T*>(emulation::in_block(shared, rank, site));
}
inline void arrive(Barrier& barrier, unsigned rank, const Site& site = Site::current()) {
  emulation::arrive_at_barrier(emulation::in_block(&barrier, rank, site), 0, site);
}
inline void wait_for_cluster(Barrier& barrier, unsigned parity,
                             const Site& site = Site::current()) {
  emulation::wait_for_barrier(&barrier, parity, site);
}
inline void copy_tile(void* shared, const TensorMap& map, const TilePlace& place, Barrier& barrier,
                      std::uint16_t blocks, const Site& site = Site::current()) {
  emulation::TileMap tiles;
  memcpy(&tiles, &map, sizeof tiles);
  emulation::copy_tile(shared, tiles, {place.channel, place.token, place.head, place.batch},
                       &barrier, blocks, site);
}

#endif

}  // namespace tessera::gpu
