#include <algorithm>
#include <type_traits>

#include "kernels/cpu/numeric.h"
#include "kernels/reduce/op.h"
#include "runtime/threads.h"

namespace tessera::cpu {
namespace {

// Elements per partial result.
constexpr std::int64_t kChunk = 1 << 16;

// One partial result per chunk and word, in workspace memory.
template <typename Partial>
Tensor make_partials(std::int64_t total, std::int64_t words = 1) {
  const CategoryScope scope(Category::workspace);
  return Tensor::empty_on_host({chunk_count(total, kChunk), words}, dtype_of<Partial>);
}

// The bits of |x|, read as an integer, are ordered as the values are, with NaN above infinity: an
// integer maximum finds the largest magnitude and lets NaN through.
template <typename Real>
struct Magnitude;
template <>
struct Magnitude<float> {
  using Bits = std::int32_t;
  static constexpr Bits kMask = 0x7fffffff;
};
template <>
struct Magnitude<double> {
  using Bits = std::int64_t;
  static constexpr Bits kMask = 0x7fffffffffffffff;
};

template <typename T>
auto largest_magnitude(const T* __restrict__ x, std::int64_t count) {
  using M = Magnitude<compute_t<T>>;
  typename M::Bits largest = 0;
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<typename M::Bits>(load(x[i])) & M::kMask);
  }
  return largest;
}

// Double, so that the length of the sum does not show in an f32 result.
template <typename T>
double chunk_sum(const T* __restrict__ x, std::int64_t count) {
  double total = 0.0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t i = 0; i < count; ++i) total += static_cast<double>(load(x[i]));
  return total;
}

// The two words of a fixed-point sum. `valid` is false if an element was not finite or too large.
struct FixedPoint {
  std::int64_t high = 0;
  std::int64_t low = 0;
  bool valid = true;
};

constexpr int kLowBits = 30;
constexpr std::int64_t kLowMask = (std::int64_t{1} << kLowBits) - 1;
// Far below zero, so that adding valid words of other chunks or ranks does not hide it.
constexpr std::int64_t kInvalidWord = -(std::int64_t{1} << 62);

// With scale = 2^(30 - exponent), (x * scale)^2 = (x * 2^-exponent)^2 * 2^60. A float has 24
// significant bits and its square 48, so both products are exact in double.
template <typename T>
FixedPoint chunk_sum_of_squares(const T* __restrict__ x, std::int64_t count, double scale) {
  constexpr double kBound = 1 << kLowBits;
  std::int64_t high = 0, low = 0, invalid = 0;
#pragma omp simd reduction(+ : high, low, invalid)
  for (std::int64_t i = 0; i < count; ++i) {
    const double scaled = std::fabs(static_cast<double>(load(x[i])) * scale);
    const bool fits = scaled <= kBound;  // false for NaN
    const double bounded = fits ? scaled : 0.0;
    const auto square = static_cast<std::int64_t>(bounded * bounded);
    high += square >> kLowBits;
    low += square & kLowMask;
    invalid += fits ? 0 : 1;
  }
  return {high, low, invalid == 0};
}

}  // namespace

void max_abs(Out result, const Tensor& x) {
  visit_floating(x.dtype(), [&](auto type) {
    using T = decltype(type);
    using Real = compute_t<T>;
    using Bits = typename Magnitude<Real>::Bits;
    const T* elements = x.data<T>();
    const Tensor partials = make_partials<Bits>(x.numel());
    Bits* largest = partials.data<Bits>();
    parallel_for(x.numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
      largest[begin / kChunk] = largest_magnitude(elements + begin, end - begin);
    });
    Bits total = 0;
    for (std::int64_t i = 0; i < partials.numel(); ++i) total = std::max(total, largest[i]);
    *result.data<Real>() = std::bit_cast<Real>(total);
  });
}

void sum(Out result, const Tensor& x) {
  visit_floating(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* elements = x.data<T>();
    const Tensor partials = make_partials<double>(x.numel());
    double* sums = partials.data<double>();
    parallel_for(x.numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
      sums[begin / kChunk] = chunk_sum(elements + begin, end - begin);
    });
    double total = 0.0;
    for (std::int64_t i = 0; i < partials.numel(); ++i) total += sums[i];
    *result.data<compute_t<T>>() = static_cast<compute_t<T>>(total);
  });
}

void sum_of_squares(Out result, const Tensor& x, int exponent, Accumulate accumulate) {
  const Tensor partials = make_partials<std::int64_t>(x.numel(), 2);
  std::int64_t* words = partials.data<std::int64_t>();
  const double scale = std::ldexp(1.0, kLowBits - exponent);
  visit_floating(x.dtype(), [&](auto type) {
    const auto* elements = x.data<decltype(type)>();
    parallel_for(x.numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
      const auto sum = chunk_sum_of_squares(elements + begin, end - begin, scale);
      std::int64_t* to = words + 2 * (begin / kChunk);
      to[0] = sum.valid ? sum.high : kInvalidWord;
      to[1] = sum.valid ? sum.low : kInvalidWord;
    });
  });
  std::int64_t* totals = result.data<std::int64_t>();
  for (int word = 0; word < 2; ++word) {
    std::int64_t total = accumulate == Accumulate::yes ? totals[word] : 0;
    for (std::int64_t i = 0; i < partials.size(0); ++i) {
      const std::int64_t partial = words[2 * i + word];
      total = total < 0 || partial < 0 ? kInvalidWord : total + partial;
    }
    totals[word] = total;
  }
}

}  // namespace tessera::cpu
