// Sums of squares in fixed point, independent of the order of their terms.
//
// A sum of floats depends on its order, a sum of integers does not. So each square becomes an
// integer. With the least e such that |x| < 2^e for every element on every rank:
//
//   q = floor((x 2^-e)^2 2^60),  so 0 <= q < 2^60
//
// x 2^-e has 24 significant bits and its square 48, so only bits below 2^-60 are lost. The sum of
// all q takes two words of 64 bits:
//
//   sum of q = high 2^30 + low       each q adds q >> 30 to high and q mod 2^30 to low
//
// A partial sum (a chunk on the CPU, a block on a GPU) ends with a carry: the bits of low from 2^30
// up move to high. Its low is then below 2^30, so low has room for 2^33 partial sums of up to 2^16
// elements each, counted over all ranks. High has room while the sum of (x 2^-e)^2 is below 2^33.
// That is the only bound: 2^33 elements as large as the largest one, or 2^43 that are 32 times
// smaller in the root mean square, as gradients are.
#pragma once

#include <cmath>
#include <cstdint>

namespace tessera {

inline constexpr int kLowBits = 30;
inline constexpr std::int64_t kLowMask = (std::int64_t{1} << kLowBits) - 1;

/// The sum of fixed-point squares on the host; kernels/gradient_norm/cuda.cu has it for devices.
struct FixedPointSum {
  std::int64_t high = 0;
  std::int64_t low = 0;

  /// The same sum with low below 2^30. Equal sums have equal words after it.
  FixedPointSum carried() const { return {high + (low >> kLowBits), low & kLowMask}; }

  /// The square root of the sum of x^2.
  double root(int exponent) const {
    const FixedPointSum sum = carried();
    const double squares = std::ldexp(static_cast<double>(sum.high), -kLowBits) +
                           std::ldexp(static_cast<double>(sum.low), -2 * kLowBits);
    return std::ldexp(std::sqrt(squares), exponent);
  }
};

}  // namespace tessera
