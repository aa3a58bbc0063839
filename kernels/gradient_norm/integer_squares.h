// A warp's sum of squares in integers, for GPUs with few units for f64.
//
// With the warp's largest magnitude below 2^e, x is a whole number of 2^(e - 44):
//
//   x = 2^(e - 44) (2^22 high + low)                             |high| up to 2^22, |low| up to 2^21
//   x^2 = 2^(2 e - 88) (2^44 high^2 + 2^23 high low + low^2)     three integer products, three sums
//
// unless |x| is below 2^(e - 21): two million times smaller than the largest.
//
// The two numbers come from additions of floats. 1.5 * 2^23 + y rounds a float y of at most 2^22 to a
// whole number, which then lies in the low bits of the sum. The rest of y, times 2^22, gives the other
// number in the same way. Shifts of 64 bits would take more instructions.
#pragma once

#include "kernels/gradient_norm/device.h"

namespace tessera::cuda {

/// A float's whole part and the rest of a float, in [-1/2, 1/2].
struct Split {
  int whole;
  float rest;

  /// Splits x * scale, which is at most 2^22.
  __device__ Split(float x, float scale) {
    constexpr float kRounds = 0x1.8p23f;  // floats of this size are whole numbers
    const float sum = fmaf(x, scale, kRounds);
    whole = static_cast<int>(__float_as_uint(sum) - __float_as_uint(kRounds));
    rest = fmaf(x, scale, kRounds - sum);
  }
};

class IntegerSquares {
 public:
  /// For magnitudes up to `largest`, as bits.
  explicit __device__ IntegerSquares(int largest) {
    constexpr int kLowest = 21;  // all floats below 2^-105 are whole numbers of 2^-149
    top_ = max(largest >> 23, kLowest);
    smallest_ = top_ == kLowest ? 1 : (top_ - 20) << 23;
  }

  /// Whether the magnitude is not 0, and too small.
  __device__ bool is_too_small(float x) const {
    return static_cast<unsigned>(gpu::bits_of_magnitude(x) - 1) <
           static_cast<unsigned>(smallest_ - 1);
  }

  /// Adds the squares of the warp's elements that are not too small to its words. Returns whether others
  /// may be left.
  __device__ bool add(Word* words, const float (&x)[kElements]) const {
    const float scale = __uint_as_float((275u - top_) << 23);  // brings the largest below 2^22
    std::int64_t high_high = 0, high_low = 0, low_low = 0;
    bool smaller = false;
#pragma unroll
    for (int k = 0; k < kElements; ++k) {
      const bool waits = is_too_small(x[k]);
      smaller |= waits;
      const Split high(waits ? 0.0f : x[k], scale), low(high.rest, 0x1p22f);
      high_high += std::int64_t{high.whole} * high.whole;
      high_low += std::int64_t{high.whole} * low.whole;
      low_low += std::int64_t{low.whole} * low.whole;
    }
    const Uint128 sum = warp_sum(shifted(high_high, 44) + shifted(high_low, 23) + low_low);
    if (threadIdx.x % 32 == 0) add_value(words, sum, 2 * (top_ - 170) - kLowestBit);
    return __any_sync(gpu::kFullWarp, smaller);
  }

 private:
  __device__ static Uint128 shifted(std::int64_t sum, int bits) {
    return static_cast<Uint128>(sum) << bits;
  }

  __device__ static Uint128 warp_sum(Uint128 value) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      const Word high = __shfl_xor_sync(gpu::kFullWarp, static_cast<Word>(value >> 64), distance);
      const Word low = __shfl_xor_sync(gpu::kFullWarp, static_cast<Word>(value), distance);
      value += static_cast<Uint128>(high) << 64 | low;
    }
    return value;
  }

  int top_;       // the largest is below 2^(top - 126)
  int smallest_;  // the smallest that is a whole number of 2^(top - 170), but for 0
};

}  // namespace tessera::cuda
