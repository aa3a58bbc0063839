// Rung 4, threads: each takes some rows at a time.
#include <cmath>

#include "examples/kernel_ladder/norm/rungs.h"
#include "runtime/threads.h"

namespace tessera::kernel_ladder::norm {
namespace {

// Rows that a thread takes at a time.
constexpr std::int64_t kTaskRows = 64;

}  // namespace

void threads(const Norm& p) {
  parallel_for(p.N, kTaskRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      const float* __restrict__ x = p.x + n * p.C;
      float* __restrict__ y = p.y + n * p.C;
      float squares = 0.0f;
#pragma omp simd reduction(+ : squares)
      for (std::int64_t c = 0; c < p.C; ++c) squares += x[c] * x[c];
      const float rstd = 1.0f / std::sqrt(squares / static_cast<float>(p.C) + p.epsilon);
      p.rstd[n] = rstd;
      for (std::int64_t c = 0; c < p.C; ++c) y[c] = x[c] * rstd * p.weight[c];
    }
  });
}

}  // namespace tessera::kernel_ladder::norm
