// The norm of a gradient that lies in many tensors, on many ranks, and the factor that clips it
// (Pascanu, Mikolov, Bengio 2013). Nothing is read by the host on the way.
//
//   largest_magnitude  largest = max |x| over all elements; 0 if there are none, NaN if one is NaN
//                      (then the ranks take the maximum of theirs)
//   sum_of_squares     with the least e such that largest < 2^e, the sum over all elements of
//                      q = floor((x 2^-e)^2 2^60), in two words: sum(q >> 30) and sum(q mod 2^30)
//                      (then the ranks add theirs)
//   norm               2^e sqrt(high 2^-30 + low 2^-60);  largest itself if that is not finite
//   clip_factor        max_norm / norm if norm > max_norm, else 1 (see clip.h), divided by the
//                      scale of the loss
//
// Sums of integers do not depend on their order: any partition of the elements over ranks, blocks
// and threads gives one result, exact for fewer than 2^33 elements. Tensors are f32, bf16 or f16,
// all of one dtype, and may be empty. In sum_of_squares no |x| may be greater than `largest`.
#pragma once

#include <span>

#include "kernels/op.h"

namespace tessera {

/// A norm as the device holds it, in 24 bytes that the host can read at once.
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
  /// The largest norm to let pass; 0: any.
  double max_norm = 0.0;
  /// What the loss, and so every gradient, was multiplied with.
  double loss_scale = 1.0;
};

/// factor [1] f32: what the optimizer multiplies gradients by. NaN, with which an optimizer changes
/// nothing, if the norm or `loss` ([1] f32) is not finite.
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
