// Rung 2, row by row: all steps of a row follow each other, while the row is in the first-level cache.
#include <cmath>

#include "examples/kernel_ladder/norm/rungs.h"

namespace tessera::kernel_ladder::norm {

void row_by_row(const Norm& p) {
  for (std::int64_t n = 0; n < p.N; ++n) {
    const float* __restrict__ x = p.x + n * p.C;
    float* __restrict__ y = p.y + n * p.C;
    float squares = 0.0f;
    for (std::int64_t c = 0; c < p.C; ++c) squares += x[c] * x[c];
    const float rstd = 1.0f / std::sqrt(squares / static_cast<float>(p.C) + p.epsilon);
    p.rstd[n] = rstd;
    for (std::int64_t c = 0; c < p.C; ++c) y[c] = x[c] * rstd * p.weight[c];
  }
}

}  // namespace tessera::kernel_ladder::norm
