#include <cmath>
#include <limits>

#include "kernels/gradient_norm/clip.h"
#include "kernels/gradient_norm/op.h"
#include "kernels/reduce/op.h"
#include "runtime/category.h"

namespace tessera::cpu {

void largest_magnitude(Out largest, std::span<const Tensor> tensors) {
  const CategoryScope category(Category::workspace);
  const Tensor result = Tensor::empty_on_host({1}, DType::f32);
  float maximum = 0.0f;
  for (const Tensor& tensor : tensors) {
    cpu::max_abs(result, tensor);
    const float here = *result.data<float>();
    if (!(here <= maximum)) maximum = here;  // NaN is the largest
    if (std::isnan(maximum)) break;
  }
  *largest.data<float>() = maximum;
}

void sum_of_squares(Out words, const Tensor& largest, std::span<const Tensor> tensors) {
  words.zero();
  const float bound = *largest.data<float>();
  if (!std::isfinite(bound)) return;  // the norm is `largest`
  int exponent = 0;
  std::frexp(bound, &exponent);  // bound < 2^exponent
  for (const Tensor& tensor : tensors) {
    cpu::sum_of_squares(words, tensor, exponent, Accumulate::yes);
  }
}

void clip_factor(Out factor, const GradientNorm& norm, const Tensor& loss,
                 const ClipSettings& settings) {
  const double scaled = norm.value();
  const bool finite = std::isfinite(scaled) && std::isfinite(*loss.data<float>());
  const double scale = settings.loss_scale;
  *factor.data<float>() =
      finite ? static_cast<float>(clip_scale(scaled / scale, settings.max_norm) / scale)
             : std::numeric_limits<float>::quiet_NaN();
}

}  // namespace tessera::cpu
