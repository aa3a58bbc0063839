// A warp's sum of squares in two sums of f64, for GPUs with fast f64.
//
// With the warp's largest magnitude below 2^e, magnitudes from 2^(e - 19) on are summed without rounding:
//
//   square            a multiple of 2^(2 e - 84), below 2^(2 e)
//   its upper part    the nearest multiple of 2^(2 e - 42): the sum of 1024 needs 52 bits
//   the rest          at most 2^(2 e - 43) and of either sign: the sum of 1024 needs 52 bits
//
// A thread's upper sum begins at 1.5 * 2^(2 e + 10). The distance of f64 numbers near it is 2^(2 e - 42), so
// fma(x, x, sum) rounds the square to that, and the sum's growth is the upper part. cpu.cpp divides
// squares in the same way.
#pragma once

#include "kernels/gradient_norm/device.h"

namespace tessera::cuda {

class F64Squares {
 public:
  /// For magnitudes up to `largest`, as bits.
  explicit __device__ F64Squares(int largest) {
    constexpr int kLowest = 19;  // all floats below 2^-107 are whole numbers of 2^-149
    top_ = max(largest >> 23, kLowest);
    least_ = top_ == kLowest ? 0.0f : __uint_as_float((top_ - 18u) << 23);
  }

  __device__ bool is_too_small(float x) const { return fabsf(x) < least_; }

  /// Adds the squares of the warp's elements that are not too small to its words. Returns whether others
  /// may be left: zeros are not told from small numbers.
  __device__ bool add(Word* words, const float (&x)[kElements]) const {
    float smallest = INFINITY;
#pragma unroll
    for (int k = 0; k < kElements; ++k) smallest = fminf(smallest, fabsf(x[k]));
    const bool some_wait = __any_sync(gpu::kFullWarp, is_too_small(smallest));
    some_wait ? add_all<true>(words, x) : add_all<false>(words, x);
    return some_wait;
  }

 private:
  template <bool some_wait>
  __device__ void add_all(Word* words, const float (&x)[kElements]) const {
    const double begin = 1.5 * power_of_two(2 * top_ - 242);
    double sum = begin, rests = 0.0;
#pragma unroll
    for (int k = 0; k < kElements; ++k) {
      const double value = some_wait && is_too_small(x[k]) ? 0.0f : x[k];
      const double next = fma(value, value, sum);
      rests += fma(value, value, sum - next);
      sum = next;
    }
    const double upper = warp_sum(sum - begin), rest = warp_sum(rests);
    if (threadIdx.x % 32 != 0) return;
    const auto high = static_cast<std::int64_t>(upper * power_of_two(294 - 2 * top_));
    const auto low = static_cast<std::int64_t>(rest * power_of_two(336 - 2 * top_));
    add_value(words, (static_cast<Uint128>(high) << 42) + static_cast<Uint128>(low),
              2 * (top_ - 168) - kLowestBit);
  }

  __device__ static double power_of_two(int exponent) {
    const std::uint64_t bits = static_cast<std::uint64_t>(1023 + exponent) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return power;
  }

  __device__ static double warp_sum(double value) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      value += __shfl_xor_sync(gpu::kFullWarp, value, distance);
    }
    return value;
  }

  int top_;      // the largest is below 2^e, e = top - 126
  float least_;  // 2^(e - 19), or 0 where all are large enough
};

}  // namespace tessera::cuda
