// Products of bf16 by AMX's tiles.
#include "kernels/matmul/cpu/engine.h"

#if defined(__AMX_BF16__) && defined(__AMX_TILE__)
#include "kernels/matmul/cpu/tiles.h"

namespace tessera::cpu {
namespace {

// In assembler: GCC 12's intrinsics take no template's constants for tiles, and drop stores to the
// configuration.
struct HardwareTiles {
  /// The rows of c that the thread's tiles have; 0: none are set up.
  static thread_local std::int64_t rows_set;

  /// Eight tiles of rows of 64 bytes.
  static void set_rows(std::int64_t rows) {
    if (rows == rows_set) return;
    struct alignas(64) {
      std::uint8_t palette = 1, first_row = 0, reserved[14] = {};
      std::uint16_t row_bytes[16] = {};
      std::uint8_t rows[16] = {};
    } layout;
    for (int i = 0; i < 8; ++i) {
      layout.row_bytes[i] = 64;
      layout.rows[i] = static_cast<std::uint8_t>(rows_of_tile(i, rows));
    }
    asm volatile("ldtilecfg %0" ::"m"(layout));
    rows_set = rows;
  }
  static void end() {
    asm volatile("tilerelease");
    rows_set = 0;
  }

  template <int kTile>
  TESSERA_INLINE static void zero() {
    asm volatile("tilezero %%tmm%c0" ::"n"(kTile));
  }
  template <int kTile>
  TESSERA_INLINE static void load(const void* from, std::int64_t row_bytes) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(row_bytes), "n"(kTile)
                 : "memory");
  }
  template <int kTile>
  TESSERA_INLINE static void store(void* to, std::int64_t row_bytes) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(row_bytes), "n"(kTile) : "memory");
  }
  template <int kSum, int kA, int kB>
  TESSERA_INLINE static void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"n"(kSum), "n"(kA), "n"(kB));
  }
};

thread_local std::int64_t HardwareTiles::rows_set = 0;

}  // namespace

const Engine* amx_engine(DType dtype) {
  return dtype == DType::bf16 ? &kTiles<HardwareTiles> : nullptr;
}

}  // namespace tessera::cpu
#else
namespace tessera::cpu {
const Engine* amx_engine(DType) {
  return nullptr;
}
}  // namespace tessera::cpu
#endif
