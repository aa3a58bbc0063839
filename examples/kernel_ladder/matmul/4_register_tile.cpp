// Rung 4, a register tile: 4 x 24 elements of c stay in registers while the depth passes by.
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
    for (int v = 0; v < kVectors; ++v) from[v] = load(b + k * p.N + v * kLanes);
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
        sum = std::fma(a[i * p.K + k], b[k * p.N + j], sum);
      }
    }
  }
}

}  // namespace

void register_tile(const Product<float>& p) {
  std::fill_n(p.c, p.M * p.N, 0.0f);
  for (std::int64_t k0 = 0; k0 < p.K; k0 += kDepth) {
    const std::int64_t depth = std::min(kDepth, p.K - k0);
    for (std::int64_t j0 = 0; j0 < p.N; j0 += kBlockColumns) {
      const std::int64_t j1 = std::min(j0 + kBlockColumns, p.N);
      for (std::int64_t i = 0; i < p.M; i += kRows) {
        for (std::int64_t j = j0; j < j1; j += kColumns) {
          const std::int64_t rows = std::min(kRows, p.M - i), columns = std::min(kColumns, j1 - j);
          const float* const a = p.a + i * p.K + k0;
          const float* const b = p.b + k0 * p.N + j;
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
