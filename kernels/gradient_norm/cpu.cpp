#include <atomic>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/cpu/magnitude.h"
#include "kernels/cpu/multi_tensor.h"
#include "kernels/cpu/numeric.h"
#include "kernels/cpu/parallel.h"
#include "kernels/gradient_norm/clip.h"
#include "kernels/gradient_norm/exact_sum.h"
#include "kernels/gradient_norm/op.h"

namespace tessera::cpu {
namespace {

/// Elements that are read from memory once. The loops over them find them in the first-level cache.
constexpr std::int64_t kPieceBits = 11, kPiece = 1 << kPieceBits;
/// Elements of a task.
constexpr std::int64_t kChunk = 32 * kPiece;

constexpr std::int32_t kBitsOfInfinity = 0x7f800000;

template <typename T>
std::int32_t largest_bits(const T* x, std::int64_t count) {
  std::int32_t largest = 0;
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, bits_of_magnitude(load(x[i])));
  }
  return largest;
}

/// Magnitudes in [2^(exponent - 19), 2^exponent). In f64 their squares, and the two sums of up to
/// 2048 parts of squares, are exact:
///
///   square            a multiple of 2^(2 exponent - 85), below 2^(2 exponent)
///   its upper part    the nearest multiple of 2^(2 exponent - 42): the sum needs 53 bits
///   the rest          at most 2^(2 exponent - 43) and of either sign: the sum needs 53 bits
struct Window {
  static constexpr int kExponents = 19, kUpper = 42, kLower = 85;

  explicit Window(std::int32_t largest) {
    std::frexp(std::bit_cast<float>(largest), &exponent);
    least = std::ldexp(1.0f, exponent - kExponents);
    // The distance of f64 numbers near it is 2^(2 exponent - kUpper), so adding it rounds to that.
    split = std::ldexp(1.5, 52 + 2 * exponent - kUpper);
  }

  /// Adds the squares to the words.
  void add(std::int64_t* words, double upper, double rest) const {
    const auto high = static_cast<std::int64_t>(std::ldexp(upper, kUpper - 2 * exponent));
    const auto low = static_cast<std::int64_t>(std::ldexp(rest, kLower - 2 * exponent));
    const Uint128 sum =
        (static_cast<Uint128>(high) << (kLower - kUpper)) + static_cast<Uint128>(low);
    add_to_words(words, sum, 2 * exponent - kLower - kLowestBit);
  }

  int exponent = 0;
  float least;
  double split;
};
static_assert(kPieceBits + Window::kUpper == 53);
static_assert(kPieceBits - 1 + Window::kLower - Window::kUpper == 53);
static_assert(2 * (Window::kExponents - 1 + 24) <= Window::kLower);

/// Adds the squares of magnitudes up to `largest`, if they are in its window, to the words. Returns
/// the largest magnitude below the window.
template <typename T>
std::int32_t add_squares(std::int64_t* words, const T* x, std::int64_t count,
                         std::int32_t largest) {
  const Window window(largest);
  const auto least = std::bit_cast<std::int32_t>(window.least);
  const double split = window.split;
  double upper_sum = 0.0, rest_sum = 0.0;
  std::int32_t below = 0;
#pragma omp simd reduction(+ : upper_sum, rest_sum) reduction(max : below)
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t bits = bits_of_magnitude(load(x[i]));
    const double value = std::bit_cast<float>(bits >= least && bits <= largest ? bits : 0);
    below = std::max(below, bits < least ? bits : 0);
    const double square = value * value;
    const double upper = (square + split) - split;
    upper_sum += upper;
    rest_sum += square - upper;
  }
  window.add(words, upper_sum, rest_sum);
  return below;
}

template <typename T>
void add_piece(std::int64_t* words, const T* x, std::int64_t count) {
  std::int32_t largest = largest_bits(x, count);
  if (largest >= kBitsOfInfinity) {
    ++words[largest > kBitsOfInfinity ? kNanWord : kInfinityWord];
    return;
  }
  // Only numbers half a million times smaller than the largest of their piece need another window.
  while (largest > 0) largest = add_squares(words, x, count, largest);
}

}  // namespace

void sum_of_squares(Out words, std::span<const Tensor> tensors) {
  words.zero();
  auto* const total = words.data<std::int64_t>();
  for_each_chunk(tensors, kChunk, [=](std::size_t t, std::int64_t begin, std::int64_t end) {
    std::int64_t sum[kNormWords] = {};
    visit_floating(tensors[t].dtype(), [&](auto type) {
      using T = decltype(type);
      if constexpr (sizeof(T) <= 4) {
        const T* x = tensors[t].data<T>();
        for (std::int64_t i = begin; i < end; i += kPiece) {
          add_piece(sum, x + i, std::min(kPiece, end - i));
        }
      }
    });
    // Sums of integers do not depend on the order in which the threads arrive.
    for (int i = 0; i < kNormWords; ++i) {
      if (sum[i] != 0) std::atomic_ref(total[i]).fetch_add(sum[i], std::memory_order_relaxed);
    }
  });
}

void clip_factor(Out factor, const GradientNorm& norm, const Tensor& loss,
                 const ClipSettings& settings) {
  const double scaled = norm.value();
  const double scale = settings.loss_scale;
  on_one_thread([&] {
    const bool finite = std::isfinite(scaled) && std::isfinite(*loss.data<float>());
    *factor.data<float>() =
        finite ? static_cast<float>(clip_scale(scaled / scale, settings.max_norm) / scale)
               : std::numeric_limits<float>::quiet_NaN();
  });
}

}  // namespace tessera::cpu
