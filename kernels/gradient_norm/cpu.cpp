#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/numeric.h"
#include "kernels/cpu/parallel.h"
#include "kernels/gradient_norm/clip.h"
#include "kernels/gradient_norm/fixed_point.h"
#include "kernels/gradient_norm/op.h"
#include "runtime/category.h"

namespace tessera::cpu {
namespace {

/// Elements per partial result.
constexpr std::int64_t kChunk = 1 << 16;

/// Calls work(x, count, i) for the i-th chunk of a tensor, in parallel.
template <typename F>
void for_each_chunk(const Tensor& tensor, F work) {
  visit_floating(tensor.dtype(), [&](auto type) {
    using T = decltype(type);
    if constexpr (sizeof(T) <= 4) {
      const T* x = tensor.data<T>();
      parallel_for(tensor.numel(), kChunk, [=](std::int64_t begin, std::int64_t end) {
        work(x + begin, end - begin, begin / kChunk);
      });
    }
  });
}

/// Workspace for one partial result per chunk.
Tensor partial_results(const Tensor& tensor, std::int64_t words, DType dtype) {
  const CategoryScope category(Category::workspace);
  return Tensor::empty_on_host({chunk_count(tensor.numel(), kChunk), words}, dtype);
}

// The bits of |x| are ordered as the values are, with NaN above infinity. So an integer maximum
// finds the largest magnitude and lets NaN through. A chunk is read at four places at a time: the
// memory serves several streams faster than one.
template <typename T>
std::int32_t largest_bits(const T* __restrict__ x, std::int64_t count) {
  const auto bits = [x](std::int64_t i) {
    return std::bit_cast<std::int32_t>(load(x[i])) & 0x7fffffff;
  };
  const std::int64_t quarter = count / 4;
  std::int32_t largest = 0;
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < quarter; ++i) {
    largest = std::max(
        {largest, bits(i), bits(i + quarter), bits(i + 2 * quarter), bits(i + 3 * quarter)});
  }
  for (std::int64_t i = 4 * quarter; i < count; ++i) largest = std::max(largest, bits(i));
  return largest;
}

// With scale = 2^(30 - exponent), (x scale)^2 = (x 2^-exponent)^2 2^60. Both products are exact in
// double: they have 24 and 48 significant bits.
template <typename T>
std::int64_t fixed_point_square(T x, double scale) {
  const double scaled = static_cast<double>(load(x)) * scale;
  return static_cast<std::int64_t>(scaled * scaled);
}

template <typename T>
FixedPointSum chunk_sum_of_squares(const T* __restrict__ x, std::int64_t count, double scale) {
  // A lane adds 8 squares, which are below 2^60, before it splits their sum.
  constexpr std::int64_t kSquares = 8, kGroup = kSquares * kLanes;
  std::int64_t high = 0, low = 0, i = 0;
  for (; i + kGroup <= count; i += kGroup) {
    std::int64_t sums[kLanes] = {};
    for (std::int64_t j = 0; j < kGroup; j += kLanes) {
#pragma omp simd
      for (int lane = 0; lane < kLanes; ++lane) {
        sums[lane] += fixed_point_square(x[i + j + lane], scale);
      }
    }
#pragma omp simd reduction(+ : high, low)
    for (int lane = 0; lane < kLanes; ++lane) {
      high += sums[lane] >> kLowBits;
      low += sums[lane] & kLowMask;
    }
  }
  for (; i < count; ++i) {
    const std::int64_t square = fixed_point_square(x[i], scale);
    high += square >> kLowBits;
    low += square & kLowMask;
  }
  return FixedPointSum{high, low}.carried();
}

}  // namespace

void largest_magnitude(Out largest, std::span<const Tensor> tensors) {
  std::int32_t bits = 0;
  for (const Tensor& tensor : tensors) {
    const Tensor memory = partial_results(tensor, 1, DType::i32);
    auto* const partials = memory.data<std::int32_t>();
    for_each_chunk(tensor, [=](const auto* x, std::int64_t count, std::int64_t i) {
      partials[i] = largest_bits(x, count);
    });
    for (std::int64_t i = 0; i < memory.numel(); ++i) bits = std::max(bits, partials[i]);
  }
  on_one_thread([&] { *largest.data<float>() = std::bit_cast<float>(bits); });
}

void sum_of_squares(Out words, const Tensor& largest, std::span<const Tensor> tensors) {
  words.zero();
  const float bound = *largest.data<float>();
  if (!std::isfinite(bound)) return;  // the norm is `largest`
  int exponent = 0;
  std::frexp(bound, &exponent);  // bound < 2^exponent
  const double scale = std::ldexp(1.0, kLowBits - exponent);
  auto* const total = words.data<std::int64_t>();
  for (const Tensor& tensor : tensors) {
    const Tensor memory = partial_results(tensor, 2, DType::i64);
    auto* const partials = memory.data<std::int64_t>();
    for_each_chunk(tensor, [=](const auto* x, std::int64_t count, std::int64_t i) {
      const FixedPointSum sum = chunk_sum_of_squares(x, count, scale);
      partials[2 * i] = sum.high;
      partials[2 * i + 1] = sum.low;
    });
    on_one_thread([&] {
      for (std::int64_t i = 0; i < memory.size(0); ++i) {
        total[0] += partials[2 * i];
        total[1] += partials[2 * i + 1];
      }
    });
  }
}

void clip_factor(Out factor, const GradientNorm& norm, const Tensor& loss,
                 const ClipSettings& settings) {
  const double scaled = norm.value();
  const bool finite = std::isfinite(scaled) && std::isfinite(*loss.data<float>());
  const double scale = settings.loss_scale;
  on_one_thread([&] {
    *factor.data<float>() =
        finite ? static_cast<float>(clip_scale(scaled / scale, settings.max_norm) / scale)
               : std::numeric_limits<float>::quiet_NaN();
  });
}

}  // namespace tessera::cpu
