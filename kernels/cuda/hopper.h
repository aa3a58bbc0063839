// Hopper's instructions (sm_90a): mbarriers, bulk copies of tiles, wgmma, shares of registers.
//
// They are PTX under nvcc. Under the host compiler the emulator carries them out and checks their
// rules (runtime/emulation/device/hopper.h). Source: PTX ISA 9.0, "Parallel Synchronization and
// Communication Instructions: mbarrier", "Data Movement and Conversion Instructions: Tensor copy" and
// "Asynchronous Warpgroup Level Matrix Instructions".
//
// A *warpgroup* is four warps, the first of which has a number that is a multiple of 4.
//
//   copy engine   --- tile, bytes counted --->  shared memory  --- descriptors --->  wgmma
//        |                                                                             |
//        '--> Barrier "full": its phase ends when all bytes are there                  '--> registers,
//             Barrier "empty": its phase ends when all readers have arrived                 after a wait
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/language.h"
#include "kernels/cuda/tensor_core.h"
#include "kernels/cuda/tensor_map.h"
#include "runtime/half.h"

#if !defined(__CUDACC__)
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

inline constexpr int kWarpgroup = 128;

/// The panels of a right operand B: their rows are the columns of B (Q K^T), or its rows (P V).
enum class Panels { of_columns_of_b, of_rows_of_b };

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
/// After ordinary writes to shared memory, in each writing thread, before the copy engine or wgmma
/// reads them.
__device__ inline void fence_shared_for_engines() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- Products of a warpgroup ---------------------------------------------------------------------

/// An operand of wgmma in shared memory: 16-bit elements in panels of 64 to a row of 128 bytes, with
/// the 128-byte swizzle: chunk c (16 bytes) of row r lies at c ^ (r % 8).
struct Descriptor {
  std::uint64_t bits;

  /// Each of the panel's rows is a row of A (a column of B); `start` is at the first row and a
  /// multiple of 16 channels.
  __device__ static Descriptor of_rows(const void* start) { return {encode(start, 16)}; }
  /// Each of the panel's rows is a row of B, 16 in all; panels lie `panel_bytes` apart.
  __device__ static Descriptor of_columns(const void* start, int panel_bytes) {
    return {encode(start, panel_bytes)};
  }

 private:
  static constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  static constexpr int kEightRows = 1024;  // bytes
  __device__ static std::uint64_t encode(const void* start, int leading_bytes) {
    const std::uint64_t address = (shared_address(start) & 0x3ffff) >> 4;
    return address | static_cast<std::uint64_t>(leading_bytes >> 4) << 16 |
           static_cast<std::uint64_t>(kEightRows >> 4) << 32 | kSwizzle128;
  }
};

#define TESSERA_RESULTS_OF_4(c, i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define TESSERA_RESULTS_OF_16(c, i)                                                           \
  TESSERA_RESULTS_OF_4(c, i), TESSERA_RESULTS_OF_4(c, i + 1), TESSERA_RESULTS_OF_4(c, i + 2), \
      TESSERA_RESULTS_OF_4(c, i + 3)
#define TESSERA_RESULTS_64(c) TESSERA_RESULTS_OF_16(c, 0), TESSERA_RESULTS_OF_16(c, 4)
#define TESSERA_RESULTS_128(c) \
  TESSERA_RESULTS_64(c), TESSERA_RESULTS_OF_16(c, 8), TESSERA_RESULTS_OF_16(c, 12)
#define TESSERA_NAMES_64                                                                       \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TESSERA_NAMES_128                                                                        \
  TESSERA_NAMES_64                                                                               \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, " \
  "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// The operands after the results: A's and B's descriptor (or four registers of A), and whether to add.
#define TESSERA_WGMMA_SHARED(n, type, a, b, add, transposed)                       \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" add ", 0;\n"                              \
               "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " "            \
               "{" TESSERA_NAMES_##n "}, %" a ", %" b ", p, 1, 1, 0, %" transposed ";\n}"
#define TESSERA_WGMMA_REGISTERS(n, type, a, b, add, transposed)                    \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" add ", 0;\n"                              \
               "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " "            \
               "{" TESSERA_NAMES_##n "}, {" a "}, %" b ", p, 1, 1, %" transposed ";\n}"

/// c (64 x kN) = a (64 x 16) b (16 x kN), or with `add` c += a b, in f32; a and b of bfloat16 or
/// float16. c[n][i] is the value of mma.sync's fragments: row 16 warp + lane / 4 + (i / 2) * 8,
/// column 8 n + lane % 4 * 2 + i % 2. All threads of the warpgroup call this; c may be used after
/// wait_products.
template <typename T, Panels kPanels, int kN>
__device__ inline void multiply_tiles(float (&c)[kN / 8][4], const Descriptor& a,
                                      const Descriptor& b, bool add) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int kTransposed = kPanels == Panels::of_rows_of_b ? 1 : 0;
  const int adds = add ? 1 : 0;
  constexpr bool kBf16 = std::is_same_v<T, bfloat16>;
  static_assert(kBf16 || std::is_same_v<T, float16>);
  static_assert(kN == 64 || kN == 128);
  if constexpr (kN == 64 && kBf16) {
    TESSERA_WGMMA_SHARED(64, "bf16", "32", "33", "34", "35")
        : TESSERA_RESULTS_64(c) : "l"(a.bits), "l"(b.bits), "r"(adds), "n"(kTransposed));
  } else if constexpr (kN == 64) {
    TESSERA_WGMMA_SHARED(64, "f16", "32", "33", "34", "35")
        : TESSERA_RESULTS_64(c) : "l"(a.bits), "l"(b.bits), "r"(adds), "n"(kTransposed));
  } else if constexpr (kBf16) {
    TESSERA_WGMMA_SHARED(128, "bf16", "64", "65", "66", "67")
        : TESSERA_RESULTS_128(c) : "l"(a.bits), "l"(b.bits), "r"(adds), "n"(kTransposed));
  } else {
    TESSERA_WGMMA_SHARED(128, "f16", "64", "65", "66", "67")
        : TESSERA_RESULTS_128(c) : "l"(a.bits), "l"(b.bits), "r"(adds), "n"(kTransposed));
  }
#endif
}

/// The same with a in registers: a[0] is row lane / 4, columns lane % 4 * 2 and + 1; a[1] eight rows
/// down; a[2] and a[3] eight columns to the right.
template <typename T, Panels kPanels, int kN>
__device__ inline void multiply_registers(float (&c)[kN / 8][4], const unsigned (&a)[4],
                                          const Descriptor& b, bool add) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int kTransposed = kPanels == Panels::of_rows_of_b ? 1 : 0;
  const int adds = add ? 1 : 0;
  constexpr bool kBf16 = std::is_same_v<T, bfloat16>;
  static_assert(kBf16 || std::is_same_v<T, float16>);
  static_assert(kN == 64 || kN == 128);
  if constexpr (kN == 64 && kBf16) {
    TESSERA_WGMMA_REGISTERS(64, "bf16", "%32, %33, %34, %35", "36", "37", "38")
        : TESSERA_RESULTS_64(c)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits), "r"(adds), "n"(kTransposed));
  } else if constexpr (kN == 64) {
    TESSERA_WGMMA_REGISTERS(64, "f16", "%32, %33, %34, %35", "36", "37", "38")
        : TESSERA_RESULTS_64(c)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits), "r"(adds), "n"(kTransposed));
  } else if constexpr (kBf16) {
    TESSERA_WGMMA_REGISTERS(128, "bf16", "%64, %65, %66, %67", "68", "69", "70")
        : TESSERA_RESULTS_128(c)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits), "r"(adds), "n"(kTransposed));
  } else {
    TESSERA_WGMMA_REGISTERS(128, "f16", "%64, %65, %66, %67", "68", "69", "70")
        : TESSERA_RESULTS_128(c)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits), "r"(adds), "n"(kTransposed));
  }
#endif
}
#undef TESSERA_WGMMA_REGISTERS
#undef TESSERA_WGMMA_SHARED
#undef TESSERA_NAMES_128
#undef TESSERA_NAMES_64
#undef TESSERA_RESULTS_128
#undef TESSERA_RESULTS_64
#undef TESSERA_RESULTS_OF_16
#undef TESSERA_RESULTS_OF_4

/// Before the first product of a group: the registers that it reads are written.
__device__ inline void begin_products() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
/// The products since the last call are a group.
__device__ inline void commit_products() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
/// Keeps the compiler from moving uses of c before this place.
template <int kPieces>
__device__ inline void pin(float (&c)[kPieces][4]) {
#pragma unroll
  for (int n = 0; n < kPieces; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(c[n][i])::"memory");
  }
}
/// Waits until at most `kInFlight` groups are in flight. From here on c may be used, a result of a
/// group that is complete.
template <int kInFlight, int kPieces>
__device__ inline void wait_products(float (&c)[kPieces][4]) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kInFlight) : "memory");
  pin(c);
#endif
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
inline void fence_shared_for_engines() {
  emulation::fence_shared_for_engines();
}

struct Descriptor {
  emulation::Panel panel;

  static Descriptor of_rows(const void* start, const Site& site = Site::current()) {
    return {emulation::panel_of_rows(start, site)};
  }
  static Descriptor of_columns(const void* start, int panel_bytes,
                               const Site& site = Site::current()) {
    return {emulation::panel_of_columns(start, panel_bytes, site)};
  }
};

template <typename T, Panels kPanels, int kN>
void multiply_tiles(float (&c)[kN / 8][4], const Descriptor& a, const Descriptor& b, bool add,
                    const Site& site = Site::current()) {
  emulation::issue_product<T>(
      {&c[0][0], nullptr, a.panel, b.panel, kN, kPanels == Panels::of_rows_of_b, add, site});
}
template <typename T, Panels kPanels, int kN>
void multiply_registers(float (&c)[kN / 8][4], const unsigned (&a)[4], const Descriptor& b,
                        bool add, const Site& site = Site::current()) {
  emulation::issue_product<T>(
      {&c[0][0], a, {}, b.panel, kN, kPanels == Panels::of_rows_of_b, add, site});
}
inline void begin_products(const Site& site = Site::current()) {
  emulation::begin_products(site);
}
inline void commit_products(const Site& site = Site::current()) {
  emulation::commit_products(site);
}
template <int kPieces>
void pin(float (&)[kPieces][4]) {}
template <int kInFlight, int kPieces>
void wait_products(float (&c)[kPieces][4], const Site& site = Site::current()) {
  emulation::wait_products(kInFlight, &c[0][0], site);
}

#endif

}  // namespace tessera::gpu
