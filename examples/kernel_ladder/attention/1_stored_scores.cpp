// Rung 1, stored scores: the formula written out, with the square matrix of a head in memory.
#include <algorithm>
#include <cmath>
#include <limits>

#include "examples/kernel_ladder/attention/rungs.h"

namespace tessera::kernel_ladder::attention {

void stored_scores(const Attention& p) {
  for (std::int64_t h = 0; h < p.H; ++h) {
    const std::int64_t head = h * p.T * p.D;
    const float *q = p.q + head, *k = p.k + head, *v = p.v + head;
    float* const o = p.o + head;
    for (std::int64_t i = 0; i < p.T; ++i) {
      for (std::int64_t j = 0; j < p.T; ++j) {
        float score = 0.0f;
        for (std::int64_t d = 0; d < p.D; ++d) score += q[i * p.D + d] * k[j * p.D + d];
        const bool hidden = j > i;
        p.scores[i * p.T + j] = hidden ? -std::numeric_limits<float>::infinity() : p.scale * score;
      }
    }
    for (std::int64_t i = 0; i < p.T; ++i) {
      float* const row = p.scores + i * p.T;
      const float maximum = *std::max_element(row, row + p.T);
      float sum = 0.0f;
      for (std::int64_t j = 0; j < p.T; ++j) sum += row[j] = std::exp(row[j] - maximum);
      for (std::int64_t j = 0; j < p.T; ++j) row[j] /= sum;
    }
    for (std::int64_t i = 0; i < p.T; ++i) {
      for (std::int64_t d = 0; d < p.D; ++d) {
        float sum = 0.0f;
        for (std::int64_t j = 0; j < p.T; ++j) sum += p.scores[i * p.T + j] * v[j * p.D + d];
        o[i * p.D + d] = sum;
      }
    }
  }
}

}  // namespace tessera::kernel_ladder::attention
