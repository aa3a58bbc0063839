// Sums of squares without rounding, independent of the order of their terms.
//
// A sum of floats depends on its order, a sum of integers does not. The square of an f32 number is
// a whole number below 2^48 times a power of two, and never smaller than 2^-298. So the sum of all
// squares is a whole number of 2^-298. It takes 18 words of 32 bits, after Kulisch ("Computer
// Arithmetic and Validity", 2013):
//
//   sum of x^2 = 2^-298 (word 0 + 2^32 word 1 + 2^64 word 2 + ... + 2^544 word 17)
//
// A word is held in 64 bits. Each addition adds less than 2^32 to it, so it has room for 2^31
// additions without a carry. A backend adds up 1024 squares or more in a number of 128 bits
// before it adds that number to the words: 2^41 elements on all ranks together do not overflow.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "kernels/gradient_norm/op.h"

namespace tessera {

__extension__ using Uint128 = unsigned __int128;

/// The power of two that word 0 counts.
inline constexpr int kLowestBit = -298;

/// Adds value * 2^(kLowestBit + position) to the words. If `position` is negative, so many low bits
/// of `value` must be 0. kernels/gradient_norm/cuda.cu has it for devices.
inline void add_to_words(std::int64_t* words, Uint128 value, int position) {
  if (position < 0) return add_to_words(words, value >> -position, 0);
  const int shift = position % 32;
  std::int64_t* word = words + position / 32;
  *word += static_cast<std::uint32_t>(value << shift);
  for (value >>= 32 - shift; value != 0; value >>= 32) *++word += static_cast<std::uint32_t>(value);
}

/// The square root of the sum that the words stand for, to the accuracy of f64.
inline double root_of_words(std::span<const std::int64_t, kSquareWords> words) {
  // With the carries resolved, equal sums have equal words, and so the same bits.
  std::int64_t carry = 0;
  double sum = 0.0;
  for (const std::int64_t word : words) {
    const std::int64_t digit = word + carry;
    carry = digit >> 32;
    sum = sum * 0x1p-32 + static_cast<double>(digit & 0xffffffff);
  }
  // Counted in 2^(32 * 17 - 298) = 2^246.
  return std::sqrt(sum + static_cast<double>(carry) * 0x1p32) * 0x1p123;
}

}  // namespace tessera
