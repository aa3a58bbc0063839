// Rung 4, fused: the loss needs a row's maximum and sum, so no probability is written.
#include <algorithm>
#include <cmath>
#include <limits>

#include "examples/kernel_ladder/softmax/rungs.h"
#include "kernels/cpu/numeric.h"

namespace tessera::kernel_ladder::softmax {
namespace {

using cpu::exponential;

// Columns of a block: 2 KB, which stay in the first-level cache between their maximum and their sum.
constexpr std::int64_t kBlock = 512;

}  // namespace

void fused(const Softmax& p) {
  for (std::int64_t n = 0; n < p.N; ++n) {
    const float* __restrict__ x = p.x + n * p.C;
    float maximum = -std::numeric_limits<float>::infinity(), sum = 0.0f;
    for (std::int64_t begin = 0; begin < p.C; begin += kBlock) {
      const std::int64_t end = std::min(begin + kBlock, p.C);
      float risen = maximum, block = 0.0f;
#pragma omp simd reduction(max : risen)
      for (std::int64_t c = begin; c < end; ++c) risen = x[c] > risen ? x[c] : risen;
#pragma omp simd reduction(+ : block)
      for (std::int64_t c = begin; c < end; ++c) block += exponential(x[c] - risen);
      sum = sum * exponential(maximum - risen) + block;
      maximum = risen;
    }
    p.loss[n] = maximum - x[p.target[n]] + std::log(sum);
  }
}

}  // namespace tessera::kernel_ladder::softmax
