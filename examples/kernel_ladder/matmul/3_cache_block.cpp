// Rung 3, a cache block: a block of b stays in the first-level cache while all rows of a pass by.
#include <algorithm>
#include <cmath>

#include "examples/kernel_ladder/matmul/rungs.h"

namespace tessera::kernel_ladder {
namespace {

// A block of b: 30 KB of the first-level cache.
constexpr std::int64_t kDepth = 64, kBlockColumns = 120;

}  // namespace

void cache_block(const Product<float>& p) {
  std::fill_n(p.c, p.M * p.N, 0.0f);
  for (std::int64_t k0 = 0; k0 < p.K; k0 += kDepth) {
    const std::int64_t k1 = std::min(k0 + kDepth, p.K);
    for (std::int64_t j0 = 0; j0 < p.N; j0 += kBlockColumns) {
      const std::int64_t j1 = std::min(j0 + kBlockColumns, p.N);
      for (std::int64_t i = 0; i < p.M; ++i) {
        for (std::int64_t k = k0; k < k1; ++k) {
          for (std::int64_t j = j0; j < j1; ++j) {
            float& sum = p.c[i * p.N + j];
            sum = std::fma(p.a[i * p.K + k], p.b[k * p.N + j], sum);
          }
        }
      }
    }
  }
}

}  // namespace tessera::kernel_ladder
