// Rung 2, online: the sum so far is corrected when the maximum rises, so one pass has both.
#include <cmath>
#include <limits>

#include "examples/kernel_ladder/softmax/rungs.h"

namespace tessera::kernel_ladder::softmax {

void online(const Softmax& p) {
  for (std::int64_t n = 0; n < p.N; ++n) {
    const float* __restrict__ x = p.x + n * p.C;
    float* __restrict__ y = p.y + n * p.C;
    float maximum = -std::numeric_limits<float>::infinity(), sum = 0.0f;
    for (std::int64_t c = 0; c < p.C; ++c) {
      if (x[c] > maximum) {
        sum *= std::exp(maximum - x[c]);
        maximum = x[c];
      }
      sum += std::exp(x[c] - maximum);
    }
    for (std::int64_t c = 0; c < p.C; ++c) y[c] = std::exp(x[c] - maximum) / sum;
    p.loss[n] = -std::log(y[p.target[n]]);
  }
}

}  // namespace tessera::kernel_ladder::softmax
