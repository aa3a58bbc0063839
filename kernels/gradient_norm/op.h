// The norm of a gradient and the factor that clips it (Pascanu, Mikolov, Bengio 2013).
//
// The gradient lies in many tensors on many ranks. The host reads nothing on the way:
//
//   largest_magnitude  largest = max |x| over all elements; 0 if there are none, NaN if one is NaN
//                      (then the ranks take the maximum of theirs)
//   sum_of_squares     with the least e such that largest < 2^e, the sum over all elements of
//                      q = floor((x 2^-e)^2 2^60), in two words: high 2^30 + low
//                      (then the ranks add theirs)
//   norm               2^e sqrt(high 2^-30 + low 2^-60);  largest itself if that is not finite
//   clip_factor        max_norm / norm if norm > max_norm, else 1 (see clip.h), divided by the
//                      loss scale
//
// Sums of integers do not depend on their order: any partition of the elements over ranks, blocks
// and threads gives one norm. kernels/gradient_norm/fixed_point.h explains the words and how many
// elements they hold. Tensors are f32, bf16 or f16, all of one dtype, and may be empty. In
// sum_of_squares no |x| may be greater than `largest`.
#pragma once

#include <span>

#include "kernels/op.h"

namespace tessera {

/// A norm in device memory: 24 bytes, which the host reads in one copy.
class GradientNorm {
 public:
  /// Not yet computed.
  static GradientNorm empty();
  static GradientNorm empty_on_host();

  /// [1] f32.
  Tensor largest() const;
  /// [2] i64.
  Tensor words() const;
  /// The norm. Waits for the device.
  double value() const;

 private:
  Tensor record_;  // the words, then largest
};

void largest_magnitude(const GradientNorm& norm, std::span<const Tensor> tensors);
/// `norm` holds the largest magnitude.
void sum_of_squares(const GradientNorm& norm, std::span<const Tensor> tensors);

struct ClipSettings {
  /// Norms above it are clipped; 0 means no clipping.
  double max_norm = 0.0;
  /// The factor of the loss, and so of every gradient.
  double loss_scale = 1.0;
};

/// factor [1] f32: the optimizer multiplies gradients by it. NaN if the norm or `loss` ([1] f32) is
/// not finite; an optimizer then changes nothing.
void clip_factor(Out factor, const GradientNorm& norm, const Tensor& loss,
                 const ClipSettings& settings);

// The backends read and write the parts of a GradientNorm.
using LargestMagnitudeKernel = void(Out largest, std::span<const Tensor> tensors);
using SumOfSquaresKernel = void(Out words, const Tensor& largest, std::span<const Tensor> tensors);

namespace cpu {
LargestMagnitudeKernel largest_magnitude;
SumOfSquaresKernel sum_of_squares;
decltype(tessera::clip_factor) clip_factor;
}  // namespace cpu
namespace cuda {
LargestMagnitudeKernel largest_magnitude;
SumOfSquaresKernel sum_of_squares;
decltype(tessera::clip_factor) clip_factor;
}  // namespace cuda

}  // namespace tessera
