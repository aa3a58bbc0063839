// Rung 5, packed panels: the 24 columns of b that a tile reads are first copied, one row after another.
#include <algorithm>
#include <cmath>

#include "examples/kernel_ladder/matmul/rungs.h"

namespace tessera::kernel_ladder {
namespace {

// A block of b: 30 KB of the first-level cache.
constexpr std::int64_t kDepth = 64, kBlockColumns = 120;

// A tile of c in 12 of the 16 registers. Three more have a row of b, one has an element of a.
typedef float Vector __attribute__((vector_size(32), aligned(4), may_alias));
constexpr std::int64_t kLanes = 8, kRows = 4, kVectors = 3, kColumns = 24;

/// Copies columns [j, j + kColumns) of a block of b. Its rows then lie one after another.
void pack_panel(const Product<float>& p, std::int64_t k0, std::int64_t depth, std::int64_t j,
                float* panel) {
  const std::int64_t columns = std::min(kColumns, p.N - j);
  for (std::int64_t k = 0; k < depth; ++k) {
    std::copy_n(p.b + (k0 + k) * p.N + j, columns, panel + k * kColumns);
  }
}

Vector load(const float* from) {
  return *reinterpret_cast<const Vector*>(from);
}
void store(float* to, const Vector& values) {
  *reinterpret_cast<Vector*>(to) = values;
}

/// c += a b for a tile of c, with sums in registers.
void multiply_tile(const Product<float>& p, const float* a, const float* b, float* c,
                   std::int64_t depth) {
  Vector sum[kRows][kVectors];
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < kVectors; ++v) sum[i][v] = load(c + i * p.N + v * kLanes);
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    Vector from[kVectors];
    for (int v = 0; v < kVectors; ++v) from[v] = load(b + k * kColumns + v * kLanes);
    for (int i = 0; i < kRows; ++i) {
      for (int v = 0; v < kVectors; ++v) sum[i][v] += a[i * p.K + k] * from[v];
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < kVectors; ++v) store(c + i * p.N + v * kLanes, sum[i][v]);
  }
}

/// The same for a smaller tile, at the lower and right edges of c.
void multiply_edge(const Product<float>& p, const float* a, const float* b, float* c,
                   std::int64_t depth, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t k = 0; k < depth; ++k) {
      for (std::int64_t j = 0; j < columns; ++j) {
        float& sum = c[i * p.N + j];
        sum = std::fma(a[i * p.K + k], b[k * kColumns + j], sum);
      }
    }
  }
}

}  // namespace

void packed_panels(const Product<float>& p) {
  std::fill_n(p.c, p.M * p.N, 0.0f);
  for (std::int64_t k0 = 0; k0 < p.K; k0 += kDepth) {
    const std::int64_t depth = std::min(kDepth, p.K - k0);
    for (std::int64_t j0 = 0; j0 < p.N; j0 += kBlockColumns) {
      const std::int64_t j1 = std::min(j0 + kBlockColumns, p.N);
      for (std::int64_t j = j0; j < j1; j += kColumns) {
        pack_panel(p, k0, depth, j, p.scratch + (j - j0) * depth);
      }
      for (std::int64_t i = 0; i < p.M; i += kRows) {
        for (std::int64_t j = j0; j < j1; j += kColumns) {
          const std::int64_t rows = std::min(kRows, p.M - i), columns = std::min(kColumns, j1 - j);
          const float* const a = p.a + i * p.K + k0;
          const float* const b = p.scratch + (j - j0) * depth;
          float* const c = p.c + i * p.N + j;
          if (rows == kRows && columns == kColumns) {
            multiply_tile(p, a, b, c, depth);
          } else {
            multiply_edge(p, a, b, c, depth, rows, columns);
          }
        }
      }
    }
  }
}

}  // namespace tessera::kernel_ladder
