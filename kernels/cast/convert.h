// Conversion of elements on the CPU, for cast and for kernels that write a copy.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/numeric.h"

namespace tessera::cpu {

/// Rounds to float so that a second rounding, to 16 bits, gives the same result as rounding the
/// double once. An inexact result becomes the odd one of its two neighbours, which is never a tie
/// (Boldo, Melquiond 2008, "Emulation of FMA and correctly rounded sums": rounding to odd).
inline float round_to_odd(double x) {
  const float nearest = static_cast<float>(x);
  const auto bits = std::bit_cast<std::uint32_t>(nearest);
  const double back = nearest;
  const bool keep = back == x || x != x || (bits & 1u) != 0;
  const std::uint32_t odd = std::fabs(back) > std::fabs(x) ? bits - 1u : bits + 1u;
  return std::bit_cast<float>(keep ? bits : odd);
}

template <typename To, typename From>
void convert(To* __restrict__ y, const From* __restrict__ x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<To, From>) {
      y[i] = x[i];
    } else if constexpr (sizeof(To) == 2 && std::is_same_v<From, double>) {
      store_as(y[i], round_to_odd(x[i]));
    } else {
      store_as(y[i], load(x[i]));
    }
  }
}

}  // namespace tessera::cpu
