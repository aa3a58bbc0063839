// Rung 2, loop order: the innermost loop walks along rows, so it reads whole cache lines and vectors.
#include <algorithm>
#include <cmath>

#include "examples/kernel_ladder/matmul/rungs.h"

namespace tessera::kernel_ladder {

void loop_order(const Product<float>& p) {
  std::fill_n(p.c, p.M * p.N, 0.0f);
  for (std::int64_t i = 0; i < p.M; ++i) {
    for (std::int64_t k = 0; k < p.K; ++k) {
      for (std::int64_t j = 0; j < p.N; ++j) {
        float& sum = p.c[i * p.N + j];
        sum = std::fma(p.a[i * p.K + k], p.b[k * p.N + j], sum);
      }
    }
  }
}

}  // namespace tessera::kernel_ladder
