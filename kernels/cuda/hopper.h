// Hopper's instructions (sm_90a): mbarriers, bulk copies of tiles, shares of registers.
//
// They are PTX under nvcc. Under the host compiler the emulator carries them out and checks their
// rules (runtime/emulation/device). The products of tiles are in wgmma.h. Source: PTX ISA 9.0,
// "Parallel Synchronization and Communication Instructions: mbarrier" and "Data Movement and
// Conversion Instructions: Tensor copy".
//
// A *warpgroup* is four warps, the first of which has a number that is a multiple of 4.
//
//   copy engine   --- tile, bytes counted --->  shared memory  --- descriptors --->  wgmma
//        |                                                                             |
//        '--> Barrier "full": its phase ends when all bytes are there                  '--> registers,
//             Barrier "empty": its phase ends when all readers have arrived                 after a wait
#pragma once

#include <cstdint>

#include "kernels/cuda/language.h"
#include "kernels/cuda/tensor_core.h"
#include "kernels/cuda/tensor_map.h"

#if !defined(__CUDACC__)
#include "runtime/emulation/device/matrix_store.h"
#include "runtime/emulation/device/shared_barriers.h"
#include "runtime/emulation/device/warpgroup.h"
#endif

namespace tessera::gpu {

/// Whether the code now compiled is for an architecture that has these instructions. Kernels are
/// empty where it is not.
#if defined(__CUDACC__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool kHasHopper = false;
#else
inline constexpr bool kHasHopper = true;
#endif

/// The same for mbarriers and bulk copies, which all architectures from 9.0 on have.
#if defined(__CUDACC__) && !(defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900)
inline constexpr bool kHasBulkCopies = false;
#else
inline constexpr bool kHasBulkCopies = true;
#endif

inline constexpr int kWarpgroup = 128;

#if defined(__CUDACC__)

/// Carves the block's dynamic shared memory, as SharedMemory does, at a multiple of 1024 bytes: a
/// swizzled tile begins at one. A kernel uses one of the two.
class TileMemory {
 public:
  template <typename T>
  __device__ T* take(std::size_t count, std::size_t alignment = 16) {
    extern __shared__ __align__(1024) unsigned char tessera_tile_memory[];
    offset_ = (offset_ + alignment - 1) / alignment * alignment;
    T* piece = reinterpret_cast<T*>(tessera_tile_memory + offset_);
    offset_ += count * sizeof(T);
    return piece;
  }

 private:
  std::size_t offset_ = 0;
};

// ---- Barriers in shared memory -------------------------------------------------------------------

/// A barrier with phases 0, 1, 2, ...: a phase ends when `count` threads have arrived and all bytes
/// that it expects are there. Waiters name the phase by its parity.
struct Barrier {
  std::uint64_t word;
};

__device__ inline void initialize(Barrier& barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(count)
               : "memory");
}
/// After initialize and before a block's barrier: the copy engine sees the barriers.
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void arrive(Barrier& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier))
               : "memory");
}
/// Arrives, and lets the phase wait for `bytes` more bytes.
__device__ inline void arrive_and_expect(Barrier& barrier, int bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)),
      "r"(bytes)
      : "memory");
}
/// Waits for the end of the current phase if its parity is `parity`. A new barrier's first phase has
/// parity 0, so waiting for parity 1 does not wait.
__device__ inline void wait(Barrier& barrier, unsigned parity) {
  unsigned done = 0;
  while (done == 0) {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(shared_address(&barrier)), "r"(parity)
        : "memory");
  }
}

/// A barrier of the multiprocessor among `threads` threads, some of which wait (named_sync) and the
/// others go on (named_arrive). Numbers 1 to 15; __syncthreads is number 0.
__device__ inline void named_sync(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
__device__ inline void named_arrive(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// ---- Roles ---------------------------------------------------------------------------------------

/// A warpgroup changes its registers per thread; raise waits until others have given up enough.
template <int kRegisters>
__device__ inline void lower_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}
template <int kRegisters>
__device__ inline void raise_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}
/// True in one lane of the warp. All its lanes call this.
__device__ inline bool elect_lane() {
  unsigned elected = 0;
  asm volatile(
      "{\n.reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(elected));
  return elected != 0;
}

// ---- Bulk copies ---------------------------------------------------------------------------------

/// Starts to copy the map's box that begins at `place` to `shared`, a multiple of 1024
/// bytes. Elements outside the tensor are zeros. All of the box's bytes count for the barrier. One
/// thread calls this.
__device__ inline void copy_tile(void* shared, const TensorMap& map, const TilePlace& place,
                                 Barrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(shared)),
      "l"(&map), "r"(shared_address(&barrier)), "r"(place.channel), "r"(place.token),
      "r"(place.head), "r"(place.batch)
      : "memory");
}
/// Starts to copy `bytes` bytes, which count for the barrier. Addresses and bytes are multiples of 16.
/// One thread calls this.
__device__ inline void copy_bytes(void* shared, const void* global, int bytes, Barrier& barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(&barrier))
      : "memory");
}
/// Starts to copy them to the second-level cache. Nothing waits for it.
__device__ inline void prefetch_bytes(const void* global, int bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(global)),
               "r"(bytes));
}
/// Stores four 8x8 matrices of 16-bit elements, as load_matrices loads them: lane 8 m + i points to row i
/// of matrix m, and r[m] has two neighbours of row lane / 4. All lanes of the warp call this.
__device__ inline void store_matrices(void* row, const unsigned (&r)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(shared_address(row)),
      "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
      : "memory");
}

/// An ordinary write to shared memory that the copy engine or wgmma will read.
template <typename T>
__device__ void write_for_engines(T& shared, const T& value) {
  shared = value;
}
/// After such writes, in each writing thread, before the copy engine or wgmma reads them.
__device__ inline void fence_shared_for_engines() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#else

using TileMemory = SharedMemory;

struct Barrier {
  std::uint64_t word;
};

inline void initialize(Barrier& barrier, int count, const Site& site = Site::current()) {
  emulation::initialize_barrier(&barrier, count, site);
}
inline void publish_barriers() {
  emulation::publish_barriers();
}
inline void arrive(Barrier& barrier, const Site& site = Site::current()) {
  emulation::arrive_at_barrier(&barrier, 0, site);
}
inline void arrive_and_expect(Barrier& barrier, int bytes, const Site& site = Site::current()) {
  emulation::arrive_at_barrier(&barrier, bytes, site);
}
inline void wait(Barrier& barrier, unsigned parity, const Site& site = Site::current()) {
  emulation::wait_for_barrier(&barrier, parity, site);
}
inline void named_sync(int number, int threads, const Site& site = Site::current()) {
  emulation::named_barrier(number, threads, true, site);
}
inline void named_arrive(int number, int threads, const Site& site = Site::current()) {
  emulation::named_barrier(number, threads, false, site);
}

template <int kRegisters>
void lower_registers(const Site& site = Site::current()) {
  emulation::change_registers(kRegisters, false, site);
}
template <int kRegisters>
void raise_registers(const Site& site = Site::current()) {
  emulation::change_registers(kRegisters, true, site);
}
inline bool elect_lane(const Site& site = Site::current()) {
  return emulation::elect_lane(site);
}

inline void copy_tile(void* shared, const TensorMap& map, const TilePlace& place, Barrier& barrier,
                      const Site& site = Site::current()) {
  emulation::TileMap tiles;
  memcpy(&tiles, &map, sizeof tiles);
  emulation::copy_tile(shared, tiles, {place.channel, place.token, place.head, place.batch},
                       &barrier, site);
}
inline void copy_bytes(void* shared, const void* global, int bytes, Barrier& barrier,
                       const Site& site = Site::current()) {
  emulation::copy_bytes(shared, global, bytes, &barrier, site);
}
inline void prefetch_bytes(const void*, int) {}
inline void store_matrices(void* row, const unsigned (&r)[4], const Site& site = Site::current()) {
  emulation::store_matrices(row, r, site);
}
template <typename T>
void write_for_engines(T& shared, const T& value) {
  shared = value;
  emulation::note_write_for_engines(&shared, sizeof shared);
}
inline void fence_shared_for_engines() {
  emulation::fence_shared_for_engines();
}

#endif

}  // namespace tessera::gpu
