// Rung 3, vector sums: each lane of a vector has a sum of its own, so additions wait for each other less.
#include <cmath>

#include "examples/kernel_ladder/norm/rungs.h"

namespace tessera::kernel_ladder::norm {

void vector_sums(const Norm& p) {
  for (std::int64_t n = 0; n < p.N; ++n) {
    const float* __restrict__ x = p.x + n * p.C;
    float* __restrict__ y = p.y + n * p.C;
    float squares = 0.0f;
#pragma omp simd reduction(+ : squares)
    for (std::int64_t c = 0; c < p.C; ++c) squares += x[c] * x[c];
    const float rstd = 1.0f / std::sqrt(squares / static_cast<float>(p.C) + p.epsilon);
    p.rstd[n] = rstd;
    for (std::int64_t c = 0; c < p.C; ++c) y[c] = x[c] * rstd * p.weight[c];
  }
}

}  // namespace tessera::kernel_ladder::norm
