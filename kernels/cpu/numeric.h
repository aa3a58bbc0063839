// Storage to arithmetic and back, and the exponential, for CPU kernels.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "runtime/elementary.h"
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

/// e^x for float, without branches, so that loops vectorize. The error is at most 0.895 units in
/// the last place. Results below 1.7e-38 are 0, those above the largest float infinity; NaN stays NaN.
inline float exponential(float x) {
  // e^x = 2^(n - 1) (2 e^r) with n = round(x / ln 2), |r| <= ln(2) / 2; ln 2 in two parts keeps r
  // exact. (Comparisons instead of fmin and fmax, which are calls where NaN counts.)
  const float above = -87.3f > x ? -87.3f : x;
  const float clamped = 89.0f < above ? 89.0f : above;
  // A float of this size has no fraction, so the sum is rounded to the nearest whole number. The
  // last bits of the sum hold n + 126: shifted into the exponent's place they are 2^(n - 1).
  constexpr float kWhole = 0x1.8p23f + 126.0f;
  const float whole = std::fma(clamped, 1.44269504f, kWhole);
  const float power = std::bit_cast<float>(std::bit_cast<std::uint32_t>(whole) << 23);
  const float n = whole - kWhole;
  const float r = std::fma(n, 2.12194440e-4f, std::fma(n, -0.693359375f, clamped));
  // Twice the Taylor coefficients, tuned to the interval (Cephes expf, Moshier).
  float p = 2 * 1.9875691500e-4f;
  p = std::fma(p, r, 2 * 1.3981999507e-3f);
  p = std::fma(p, r, 2 * 8.3334519073e-3f);
  p = std::fma(p, r, 2 * 4.1665795894e-2f);
  p = std::fma(p, r, 2 * 1.6666665459e-1f);
  p = std::fma(p, r, 2 * 5.0000001201e-1f);
  p = std::fma(p, r, 2.0f);
  p = std::fma(p, r, 2.0f);
  return p * power;
}
using tessera::exponential;  // of double

}  // namespace tessera::cpu
