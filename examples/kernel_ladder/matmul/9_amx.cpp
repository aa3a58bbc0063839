// Rung 9, AMX: an instruction multiplies tiles of bf16, 16 x 32 by 32 x 16, and adds to 16 x 16 floats.
#include <algorithm>

#include "examples/kernel_ladder/matmul/rungs.h"
#include "runtime/threads.h"

namespace tessera::kernel_ladder {
namespace {

// A block of b: 960 KB of the second-level cache.
constexpr std::int64_t kDepth = 512, kBlockColumns = 960;

// A tile of c in four of the eight tile registers: 2 x 2, each with 16 rows of 16 floats. Two more
// have elements of a, two of b.
constexpr std::int64_t kRows = 32, kColumns = 32, kSide = 16, kStep = 32;

constexpr bfloat16 kZeros[kColumns] = {};

// A row of a's panel has some elements more. Rows that are a multiple of 1,024 bytes long would lie
// in the same few sets of the first-level cache.
constexpr std::int64_t kPanelRow = kDepth + kStep;

// Rows of c that a thread takes at a time.
constexpr std::int64_t kTaskRows = 64;

/// Eight tiles of 16 rows of 64 bytes.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, first_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr TileShapes kShapes;

// In assembler, because GCC 12's intrinsics do not say that they read and write memory.
void set_up_tiles() {
  asm volatile("ldtilecfg %0" ::"m"(kShapes));
}
void release_tiles() {
  asm volatile("tilerelease");
}
template <int tile>
void load(const void* from, std::int64_t row_bytes) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(row_bytes), "n"(tile) : "memory");
}
template <int tile>
void store(void* to, std::int64_t row_bytes) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(row_bytes), "n"(tile) : "memory");
}
/// Tile `sum` += tile `a` times tile `b`.
template <int sum, int a, int b>
void multiply() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"n"(sum), "n"(a), "n"(b));
}

/// Copies columns [j, j + kColumns) of a block of b. A row has two depths: b[k, j], b[k + 1, j],
/// b[k, j + 1], b[k + 1, j + 1] and so on. Zeros fill the panel.
void pack_panel(const Product<bfloat16>& p, std::int64_t k0, std::int64_t depth, std::int64_t j0,
                bfloat16* panel) {
  const std::int64_t columns = std::min(kColumns, p.N - j0);
  if (columns < kColumns || depth % kStep != 0) {
    std::fill_n(panel, (depth + kStep - 1) / kStep * kStep * kColumns, bfloat16());
  }
  for (std::int64_t k = 0; k < depth; k += 2) {
    const bfloat16* const even = p.b + (k0 + k) * p.N + j0;
    const bfloat16* const odd = k + 1 < depth ? even + p.N : kZeros;
    for (std::int64_t j = 0; j < columns; ++j) {
      panel[k * kColumns + 2 * j] = even[j];
      panel[k * kColumns + 2 * j + 1] = odd[j];
    }
  }
}

/// Copies rows [i, i + kRows) of a, a row after another. Zeros fill the panel.
void pack_rows(const Product<bfloat16>& p, std::int64_t i0, std::int64_t k0, std::int64_t depth,
               bfloat16* panel) {
  const std::int64_t rows = std::min(kRows, p.M - i0);
  if (rows < kRows || depth % kStep != 0) std::fill_n(panel, kRows * kPanelRow, bfloat16());
  for (std::int64_t i = 0; i < rows; ++i) {
    std::copy_n(p.a + (i0 + i) * p.K + k0, depth, panel + i * kPanelRow);
  }
}

/// c += a b for a tile of c. Its rows lie `c_row` elements apart.
void multiply_tile(const bfloat16* a, const bfloat16* b, float* c, std::int64_t c_row,
                   std::int64_t depth) {
  const std::int64_t c_bytes = c_row * 4, a_bytes = kPanelRow * 2, b_bytes = kColumns * 4;
  load<0>(c, c_bytes);
  load<1>(c + kSide, c_bytes);
  load<2>(c + kSide * c_row, c_bytes);
  load<3>(c + kSide * c_row + kSide, c_bytes);
  for (std::int64_t k = 0; k < depth; k += kStep) {
    load<4>(a + k, a_bytes);
    load<5>(a + kSide * kPanelRow + k, a_bytes);
    load<6>(b + k * kColumns, b_bytes);
    load<7>(b + k * kColumns + 2 * kSide, b_bytes);
    multiply<0, 4, 6>();
    multiply<1, 4, 7>();
    multiply<2, 5, 6>();
    multiply<3, 5, 7>();
  }
  store<0>(c, c_bytes);
  store<1>(c + kSide, c_bytes);
  store<2>(c + kSide * c_row, c_bytes);
  store<3>(c + kSide * c_row + kSide, c_bytes);
}

/// The same for a smaller tile, at the lower and right edges of c.
void multiply_edge(const bfloat16* a, const bfloat16* b, float* c, std::int64_t c_row,
                   std::int64_t depth, std::int64_t rows, std::int64_t columns) {
  float sum[kRows * kColumns] = {};
  for (std::int64_t i = 0; i < rows; ++i) std::copy_n(c + i * c_row, columns, sum + i * kColumns);
  multiply_tile(a, b, sum, kColumns, depth);
  for (std::int64_t i = 0; i < rows; ++i) std::copy_n(sum + i * kColumns, columns, c + i * c_row);
}

}  // namespace

void amx(const Product<bfloat16>& p) {
  std::fill_n(p.c, p.M * p.N, 0.0f);
  for (std::int64_t k0 = 0; k0 < p.K; k0 += kDepth) {
    const std::int64_t depth = std::min(kDepth, p.K - k0);
    const std::int64_t whole = (depth + kStep - 1) / kStep * kStep;
    for (std::int64_t j0 = 0; j0 < p.N; j0 += kBlockColumns) {
      const std::int64_t j1 = std::min(j0 + kBlockColumns, p.N);
      parallel_for(j1 - j0, kColumns, [&](std::int64_t begin, std::int64_t) {
        pack_panel(p, k0, depth, j0 + begin, p.scratch + begin * whole);
      });
      parallel_for(p.M, kTaskRows, [&](std::int64_t i0, std::int64_t i1) {
        set_up_tiles();
        bfloat16 a[kRows * kPanelRow];
        for (std::int64_t i = i0; i < i1; i += kRows) {
          pack_rows(p, i, k0, depth, a);
          for (std::int64_t j = j0; j < j1; j += kColumns) {
            const std::int64_t rows = std::min(kRows, p.M - i),
                               columns = std::min(kColumns, j1 - j);
            const bfloat16* const b = p.scratch + (j - j0) * whole;
            float* const c = p.c + i * p.N + j;
            if (rows == kRows && columns == kColumns) {
              multiply_tile(a, b, c, p.N, depth);
            } else {
              multiply_edge(a, b, c, p.N, depth, rows, columns);
            }
          }
        }
        release_tiles();
      });
    }
  }
}

}  // namespace tessera::kernel_ladder
