// Rung 2, online: a query visits the keys one by one and corrects its output when the maximum rises.
#include <algorithm>
#include <cmath>
#include <limits>

#include "examples/kernel_ladder/attention/rungs.h"

namespace tessera::kernel_ladder::attention {

void online(const Attention& p) {
  for (std::int64_t h = 0; h < p.H; ++h) {
    const std::int64_t head = h * p.T * p.D;
    for (std::int64_t i = 0; i < p.T; ++i) {
      const float* const q = p.q + head + i * p.D;
      float* __restrict__ o = p.o + head + i * p.D;
      float maximum = -std::numeric_limits<float>::infinity(), sum = 0.0f;
      std::fill_n(o, p.D, 0.0f);
      for (std::int64_t j = 0; j < p.T; ++j) {
        const float *k = p.k + head + j * p.D, *v = p.v + head + j * p.D;
        float score = 0.0f;
#pragma omp simd reduction(+ : score)
        for (std::int64_t d = 0; d < p.D; ++d) score += q[d] * k[d];
        const bool hidden = j > i;
        score = hidden ? -std::numeric_limits<float>::infinity() : p.scale * score;
        if (score > maximum) {
          const float correction = std::exp(maximum - score);
          sum *= correction;
          for (std::int64_t d = 0; d < p.D; ++d) o[d] *= correction;
          maximum = score;
        }
        const float weight = std::exp(score - maximum);
        sum += weight;
        for (std::int64_t d = 0; d < p.D; ++d) o[d] += weight * v[d];
      }
      for (std::int64_t d = 0; d < p.D; ++d) o[d] /= sum;
    }
  }
}

}  // namespace tessera::kernel_ladder::attention
