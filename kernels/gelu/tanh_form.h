// GELU in the form of tanh, of one number, for CPU kernels.
//
// With u = sqrt(2 / pi) (x + 0.044715 x^3) and tanh(u) = 2 sigmoid(2u) - 1 the formula of gelu/op.h becomes
//
//   y     = x s,                       s = sigmoid(2u) = 1 / (1 + e^(-2u))
//   dy/dx = s + x s (1 - s) 2u',       2u' = 2 sqrt(2 / pi) (1 + 3 * 0.044715 x^2)
//
// This form has one exponential and, unlike 1 + tanh(u), does not cancel for negative x.
#pragma once

#include <cmath>

#include "kernels/cpu/numeric.h"

namespace tessera::cpu {

struct TanhGelu {
  static constexpr double kLinear = 1.5957691216057307117597842397375;  // 2 sqrt(2 / pi)
  static constexpr double kCubic = 0.044715 * kLinear;

  template <typename C>
  static C sigmoid_of_2u(C x) {
    const C minus_two_u = x * std::fma(C(-kCubic), x * x, C(-kLinear));
    return C(1) / (C(1) + exponential(minus_two_u));
  }
  template <typename C>
  static C value(C x) {
    return x * sigmoid_of_2u(x);
  }
  template <typename C>
  static C derivative(C x) {
    const C s = sigmoid_of_2u(x);
    const C two_du = std::fma(C(3 * kCubic), x * x, C(kLinear));
    return std::fma(x * s * (C(1) - s), two_du, s);
  }
};

}  // namespace tessera::cpu
