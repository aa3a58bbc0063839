// The numbers of the two 8-bit formats, for the tests of rounding.
//
// Source: the tables of the OCP 8-bit Floating Point Specification (Micikevicius et al. 2023).
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/dtype.h"

namespace tessera::test {

/// The numbers >= 0 of a format in the order of their codes, by those tables.
inline std::vector<double> numbers_of(DType format) {
  const bool e4m3 = format == DType::e4m3;
  const int mantissa_bits = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15;
  const int last = e4m3 ? 0x7e : 0x7b;
  std::vector<double> numbers;
  for (int code = 0; code <= last; ++code) {
    const int exponent = code >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
    const double fraction = std::ldexp(mantissa, -mantissa_bits);
    numbers.push_back(exponent == 0 ? std::ldexp(fraction, 1 - bias)
                                    : std::ldexp(1.0 + fraction, exponent - bias));
  }
  return numbers;
}

/// The nearest of them to |x|; of two the one with the even code. Beyond the last: the last.
inline double nearest(const std::vector<double>& numbers, double x) {
  const double magnitude = std::abs(x);
  const auto above = std::ranges::lower_bound(numbers, magnitude);
  if (above == numbers.end()) return std::copysign(numbers.back(), x);
  if (above == numbers.begin()) return std::copysign(*above, x);
  const double low = *(above - 1), high = *above;
  const bool odd_low = (above - 1 - numbers.begin()) % 2 == 1;
  const double middle = (low + high) / 2;
  const bool up = magnitude > middle || (magnitude == middle && odd_low);
  return std::copysign(up ? high : low, x);
}

}  // namespace tessera::test
