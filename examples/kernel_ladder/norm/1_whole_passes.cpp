// Rung 1, whole passes: each step of the formula passes over all rows, as separate operations do.
#include <cmath>

#include "examples/kernel_ladder/norm/rungs.h"

namespace tessera::kernel_ladder::norm {

void whole_passes(const Norm& p) {
  for (std::int64_t i = 0; i < p.N * p.C; ++i) p.y[i] = p.x[i] * p.x[i];
  for (std::int64_t n = 0; n < p.N; ++n) {
    float squares = 0.0f;
    for (std::int64_t c = 0; c < p.C; ++c) squares += p.y[n * p.C + c];
    p.rstd[n] = 1.0f / std::sqrt(squares / static_cast<float>(p.C) + p.epsilon);
  }
  for (std::int64_t n = 0; n < p.N; ++n) {
    for (std::int64_t c = 0; c < p.C; ++c) p.y[n * p.C + c] = p.x[n * p.C + c] * p.rstd[n];
  }
  for (std::int64_t n = 0; n < p.N; ++n) {
    for (std::int64_t c = 0; c < p.C; ++c) p.y[n * p.C + c] *= p.weight[c];
  }
}

}  // namespace tessera::kernel_ladder::norm
