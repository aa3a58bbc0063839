// Hopper's products of tiles (wgmma, sm_90a): a warpgroup multiplies 64 rows by 64 to 256 columns.
//
// They are PTX under nvcc. Under the host compiler the emulator carries them out and checks their
// rules (runtime/emulation/device/warpgroup.h). Source: PTX ISA 9.0, "Asynchronous Warpgroup Level
// Matrix Instructions".
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/hopper.h"
#include "runtime/e4m3_pair.h"
#include "runtime/half.h"

namespace tessera::gpu {

/// The panels of a left operand A: their rows are the rows of A (Q K^T), or its columns (X^T Y).
enum class LeftPanels { of_rows_of_a, of_columns_of_a };
/// The panels of a right operand B: their rows are the columns of B (Q K^T), or its rows (P V).
enum class Panels { of_columns_of_b, of_rows_of_b };

/// Whether wgmma takes these elements. It takes 8-bit numbers only along the depth.
template <typename T, Panels kPanels, LeftPanels kLeft>
inline constexpr bool kMultiplies = std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>;
template <>
inline constexpr bool kMultiplies<E4m3Pair, Panels::of_columns_of_b, LeftPanels::of_rows_of_a> =
    true;

#if defined(__CUDACC__)

/// An operand of wgmma in shared memory: 16-bit elements in panels of 64 to a row of 128 bytes, with
/// the 128-byte swizzle: chunk c (16 bytes) of row r lies at c ^ (r % 8).
struct Descriptor {
  std::uint64_t bits;

  /// Each of the panel's rows is a row of A (a column of B); `start` is at the first row and a
  /// multiple of 16 channels.
  __device__ static Descriptor of_rows(const void* start) { return {encode(start, 16)}; }
  /// Each of the panel's rows is a row of B (a column of A), 16 in all; panels lie `panel_bytes`
  /// apart. A has one.
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
#define TESSERA_RESULTS_256(c)                                                        \
  TESSERA_RESULTS_128(c), TESSERA_RESULTS_OF_16(c, 16), TESSERA_RESULTS_OF_16(c, 20), \
      TESSERA_RESULTS_OF_16(c, 24), TESSERA_RESULTS_OF_16(c, 28)
#define TESSERA_NAMES_64                                                                  \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
  "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TESSERA_NAMES_128                                                                   \
  TESSERA_NAMES_64                                                                          \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, " \
  "%49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define TESSERA_NAMES_256                                                                    \
  TESSERA_NAMES_128                                                                          \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, "  \
  "%81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, "    \
  "%98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, " \
  "%113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, "     \
  "%127"

// The operands after the results are A's and B's descriptor (or four registers of A), whether to add,
// and whether A and B are transposed.
#define TESSERA_WGMMA_TILES(n, type, i, j, k, l, m)                                   \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" k                                 \
               ", 0;\n"                                                               \
               "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type        \
               " "                                                                    \
               "{" TESSERA_NAMES_##n "}, %" i ", %" j ", p, 1, 1, %" l ", %" m ";\n}" \
               : TESSERA_RESULTS_##n(c)                                               \
               : "l"(a.bits), "l"(b.bits), "r"(adds), "n"(kLeftTransposed), "n"(kTransposed))
// 8-bit numbers have no transposition.
#define TESSERA_WGMMA_PAIRS(n, i, j, k)                               \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" k                 \
               ", 0;\n"                                               \
               "wgmma.mma_async.sync.aligned.m64n" #n                 \
               "k32.f32.e4m3.e4m3 "                                   \
               "{" TESSERA_NAMES_##n "}, %" i ", %" j ", p, 1, 1;\n}" \
               : TESSERA_RESULTS_##n(c)                               \
               : "l"(a.bits), "l"(b.bits), "r"(adds))
#define TESSERA_WGMMA_REGISTERS(n, type, registers, j, k, m)                           \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" k                                  \
               ", 0;\n"                                                                \
               "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type         \
               " "                                                                     \
               "{" TESSERA_NAMES_##n "}, {" registers "}, %" j ", p, 1, 1, %" m ";\n}" \
               : TESSERA_RESULTS_##n(c)                                                \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits), "r"(adds),   \
                 "n"(kTransposed))

/// c (64 x kN) = a (64 x 16) b (16 x kN), or with `add` c += a b, in f32; a and b of bfloat16,
/// float16 or E4m3Pair, whose depth is 32 numbers. c[n][i] is the value of mma.sync's fragments: row
/// 16 warp + lane / 4 + (i / 2) * 8, column 8 n + lane % 4 * 2 + i % 2. All threads of the warpgroup
/// call this; c may be used after wait_products.
template <typename T, Panels kPanels, int kN, LeftPanels kLeft = LeftPanels::of_rows_of_a>
__device__ inline void multiply_tiles(float (&c)[kN / 8][4], const Descriptor& a,
                                      const Descriptor& b, bool add) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int kLeftTransposed = kLeft == LeftPanels::of_columns_of_a ? 1 : 0;
  constexpr int kTransposed = kPanels == Panels::of_rows_of_b ? 1 : 0;
  const int adds = add ? 1 : 0;
  constexpr bool kBf16 = std::is_same_v<T, bfloat16>, kPairs = std::is_same_v<T, E4m3Pair>;
  static_assert(kMultiplies<T, kPanels, kLeft>);
  static_assert(kN == 128 || (!kPairs && (kN == 64 || kN == 256)));
  if constexpr (kPairs) {
    TESSERA_WGMMA_PAIRS(128, "64", "65", "66");
  } else if constexpr (kN == 64 && kBf16) {
    TESSERA_WGMMA_TILES(64, "bf16", "32", "33", "34", "35", "36");
  } else if constexpr (kN == 64) {
    TESSERA_WGMMA_TILES(64, "f16", "32", "33", "34", "35", "36");
  } else if constexpr (kN == 128 && kBf16) {
    TESSERA_WGMMA_TILES(128, "bf16", "64", "65", "66", "67", "68");
  } else if constexpr (kN == 128) {
    TESSERA_WGMMA_TILES(128, "f16", "64", "65", "66", "67", "68");
  } else if constexpr (kBf16) {
    TESSERA_WGMMA_TILES(256, "bf16", "128", "129", "130", "131", "132");
  } else {
    TESSERA_WGMMA_TILES(256, "f16", "128", "129", "130", "131", "132");
  }
#endif
}

/// The same with a in registers, and at most 128 columns: a[0] is row lane / 4, columns lane % 4 * 2
/// and + 1; a[1] eight rows down; a[2] and a[3] eight columns to the right.
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
    TESSERA_WGMMA_REGISTERS(64, "bf16", "%32, %33, %34, %35", "36", "37", "38");
  } else if constexpr (kN == 64) {
    TESSERA_WGMMA_REGISTERS(64, "f16", "%32, %33, %34, %35", "36", "37", "38");
  } else if constexpr (kBf16) {
    TESSERA_WGMMA_REGISTERS(128, "bf16", "%64, %65, %66, %67", "68", "69", "70");
  } else {
    TESSERA_WGMMA_REGISTERS(128, "f16", "%64, %65, %66, %67", "68", "69", "70");
  }
#endif
}
#undef TESSERA_WGMMA_REGISTERS
#undef TESSERA_WGMMA_PAIRS
#undef TESSERA_WGMMA_TILES
#undef TESSERA_NAMES_256
#undef TESSERA_NAMES_128
#undef TESSERA_NAMES_64
#undef TESSERA_RESULTS_256
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
/// The same, without use of a result: operands of the complete groups may be overwritten.
template <int kInFlight>
__device__ inline void wait_products() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kInFlight) : "memory");
#endif
}

#else

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

template <typename T, Panels kPanels, int kN, LeftPanels kLeft = LeftPanels::of_rows_of_a>
void multiply_tiles(float (&c)[kN / 8][4], const Descriptor& a, const Descriptor& b, bool add,
                    const Site& site = Site::current()) {
  static_assert(kMultiplies<T, kPanels, kLeft>);
  emulation::issue_product<T>({&c[0][0], nullptr, a.panel, b.panel, kN,
                               kLeft == LeftPanels::of_columns_of_a,
                               kPanels == Panels::of_rows_of_b, add, site});
}
template <typename T, Panels kPanels, int kN>
void multiply_registers(float (&c)[kN / 8][4], const unsigned (&a)[4], const Descriptor& b,
                        bool add, const Site& site = Site::current()) {
  emulation::issue_product<T>(
      {&c[0][0], a, {}, b.panel, kN, false, kPanels == Panels::of_rows_of_b, add, site});
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
template <int kInFlight>
void wait_products(const Site& site = Site::current()) {
  emulation::wait_products(kInFlight, nullptr, site);
}

#endif

}  // namespace tessera::gpu
