// The norm of a gradient and the factor that clips it (Pascanu, Mikolov, Bengio 2013).
//
// The gradient lies in many tensors on many ranks. One pass reads it, and the host reads nothing on
// the way:
//
//   sum_of_squares  the sum of x^2 over all elements, exactly, in 18 words; and how many parts held
//                   infinity or NaN (then the ranks add their words)
//   norm            sqrt(sum); NaN if a part held NaN, else infinity if a part held infinity
//   clip_factor     max_norm / norm if norm > max_norm, else 1 (see clip.h), divided by the
//                   loss scale
//
// The sum is exact, so it does not depend on order: any partition of the elements over ranks, blocks
// and threads gives one norm. kernels/gradient_norm/exact_sum.h explains the words and how many
// elements they hold. Tensors are f32, bf16 or f16, all of one dtype, and may be empty.
#pragma once

#include <span>

#include "kernels/op.h"

namespace tessera {

/// Words that hold the sum of squares.
inline constexpr int kSquareWords = 18;
/// The words of a norm: the sum, then the numbers of parts with NaN and with infinity.
inline constexpr int kNanWord = kSquareWords, kInfinityWord = kSquareWords + 1;
inline constexpr int kNormWords = kSquareWords + 2;

/// A norm in device memory: 160 bytes, which the host reads in one copy.
class GradientNorm {
 public:
  /// Not yet computed.
  static GradientNorm empty();
  static GradientNorm empty_on_host();
  /// One in these words, [kNormWords] i64.
  static GradientNorm in(const Tensor& words);

  /// [kNormWords] i64. Norms of disjoint parts are combined by adding their words.
  const Tensor& words() const { return words_; }
  /// The norm. Waits for the device.
  double value() const;
  /// The norm of these words, which the caller has read.
  static double of_words(std::span<const std::int64_t, kNormWords> words);

 private:
  Tensor words_;
};

void sum_of_squares(const GradientNorm& norm, std::span<const Tensor> tensors);

struct ClipSettings {
  /// Norms above it are clipped; 0 means no clipping.
  double max_norm = 0.0;
  /// The factor of the loss, and so of every gradient.
  double loss_scale = 1.0;

  bool operator==(const ClipSettings&) const = default;
};

/// factor [1] f32: the optimizer multiplies gradients by it. NaN if the norm or `loss` ([1] f32) is
/// not finite; an optimizer then changes nothing.
void clip_factor(Out factor, const GradientNorm& norm, const Tensor& loss,
                 const ClipSettings& settings);

// The backends write and read the words of a GradientNorm.
using SumOfSquaresKernel = void(Out words, std::span<const Tensor> tensors);

namespace cpu {
SumOfSquaresKernel sum_of_squares;
decltype(tessera::clip_factor) clip_factor;
}  // namespace cpu
namespace cuda {
SumOfSquaresKernel sum_of_squares;
decltype(tessera::clip_factor) clip_factor;
}  // namespace cuda

}  // namespace tessera
