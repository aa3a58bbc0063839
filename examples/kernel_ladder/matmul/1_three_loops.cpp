// Rung 1, three loops: an element of c is a row of a times a column of b.
#include <cmath>

#include "examples/kernel_ladder/matmul/rungs.h"

namespace tessera::kernel_ladder {

void three_loops(const Product<float>& p) {
  for (std::int64_t i = 0; i < p.M; ++i) {
    for (std::int64_t j = 0; j < p.N; ++j) {
      float sum = 0.0f;
      for (std::int64_t k = 0; k < p.K; ++k) {
        sum = std::fma(p.a[i * p.K + k], p.b[k * p.N + j], sum);
      }
      p.c[i * p.N + j] = sum;
    }
  }
}

}  // namespace tessera::kernel_ladder
