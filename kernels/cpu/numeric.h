// Storage to arithmetic and back, and the exponential, for CPU kernels.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "runtime/half.h"

namespace tessera::cpu {

/// The type a kernel computes in: float for 32- and 16-bit storage, double for f64.
template <typename T>
struct Compute {
  using type = float;
};
template <>
struct Compute<double> {
  using type = double;
};
template <typename T>
using compute_t = typename Compute<T>::type;

/// Storage to arithmetic and back; narrowing rounds to nearest even.
template <typename T>
inline compute_t<T> load(const T& value) {
  return static_cast<compute_t<T>>(value);
}
template <typename T>
inline void store(T& to, compute_t<T> value) {
  to = static_cast<T>(value);
}
/// A gradient may be stored wider or narrower than the activations it is computed from.
template <typename T, typename From>
inline void store_as(T& to, From value) {
  to = static_cast<T>(static_cast<compute_t<T>>(value));
}

/// e^x for float, without branches, so that loops vectorize; error below 2 units in the last place.
/// x below -87.3 gives 0 or a number under 1.2e-38, above 88.7 infinity; NaN stays NaN.
inline float exponential(float x) {
  // e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln(2) / 2; ln 2 in two parts keeps r exact.
  // (Comparisons instead of fmin and fmax, which are calls where NaN counts.)
  const float above = x > -104.0f ? x : -104.0f;
  const float clamped = above < 89.0f ? above : 89.0f;
  // A float of this size has no fraction, so the sum is rounded to the nearest whole number.
  constexpr float kWhole = 0x1.8p23f;
  const float n = (clamped * 1.44269504f + kWhole) - kWhole;
  const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
  // Taylor coefficients tuned to the interval (Cephes expf, Moshier).
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float e = p * r * r + r + 1.0f;
  // 2^n in two factors, so that neither leaves the exponent's range.
  const auto whole = static_cast<std::int32_t>(n);
  const std::int32_t half = whole >> 1;
  const float a = std::bit_cast<float>((half + 127) << 23);
  const float b = std::bit_cast<float>((whole - half + 127) << 23);
  const float result = e * a * b;
  return x == x ? result : x;
}
inline double exponential(double x) {
  return std::exp(x);
}

}  // namespace tessera::cpu
