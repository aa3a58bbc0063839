#include "kernels/gradient_norm/op.h"

#include <bit>
#include <cmath>

#include "kernels/checks.h"
#include "kernels/gradient_norm/fixed_point.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

void check_tensors(std::string_view op, const GradientNorm& norm, std::span<const Tensor> tensors) {
  for (const Tensor& tensor : tensors) {
    check_on_one_device(op, {{"norm", norm.words()}, {"x", tensor}});
    check_floating(op, {"x", tensor});
    check_same_dtype(op, {"x", tensor}, {"the first x", tensors.front()});
    check(tensor.dtype() != DType::f64, "{}: x is {}; its dtype must be f32, bf16 or f16", op,
          describe(tensor));
  }
}

}  // namespace

GradientNorm GradientNorm::empty() {
  GradientNorm norm;
  norm.record_ = Tensor::empty({3}, DType::i64);
  return norm;
}

GradientNorm GradientNorm::empty_on_host() {
  GradientNorm norm;
  norm.record_ = Tensor::empty_on_host({3}, DType::i64);
  return norm;
}

Tensor GradientNorm::largest() const {
  return Tensor::view(record_.storage(), 2 * sizeof(std::int64_t), {1}, DType::f32);
}

Tensor GradientNorm::words() const {
  return record_.slice(0, 2);
}

double GradientNorm::value() const {
  const auto record = record_.to_vector<std::int64_t>();
  const auto largest = std::bit_cast<float>(static_cast<std::uint32_t>(record[2]));
  if (!std::isfinite(largest)) return largest;
  int exponent = 0;
  std::frexp(largest, &exponent);
  return FixedPointSum{record[0], record[1]}.root(exponent);
}

void largest_magnitude(const GradientNorm& norm, std::span<const Tensor> tensors) {
  constexpr std::string_view op = "largest_magnitude";
  check_tensors(op, norm, tensors);
  const Tensor largest = norm.largest();
  if (largest.device().is_cpu()) return cpu::largest_magnitude(largest, tensors);
  if constexpr (kHasCuda) return cuda::largest_magnitude(largest, tensors);
  fail_no_kernel(op, largest.device());
}

void sum_of_squares(const GradientNorm& norm, std::span<const Tensor> tensors) {
  constexpr std::string_view op = "sum_of_squares";
  check_tensors(op, norm, tensors);
  const Tensor words = norm.words();
  if (words.device().is_cpu()) return cpu::sum_of_squares(words, norm.largest(), tensors);
  if constexpr (kHasCuda) return cuda::sum_of_squares(words, norm.largest(), tensors);
  fail_no_kernel(op, words.device());
}

void clip_factor(Out factor, const GradientNorm& norm, const Tensor& loss,
                 const ClipSettings& settings) {
  constexpr std::string_view op = "clip_factor";
  check_on_one_device(op, {{"factor", factor}, {"norm", norm.words()}, {"loss", loss}});
  for (const Argument& argument : {Argument{"factor", factor}, Argument{"loss", loss}}) {
    check_shape(op, argument, {1});
    check_dtype(op, argument, DType::f32);
  }
  check(settings.loss_scale > 0.0, "{}: the loss scale is {}; it must be above 0", op,
        settings.loss_scale);
  if (factor.device().is_cpu()) return cpu::clip_factor(factor, norm, loss, settings);
  if constexpr (kHasCuda) return cuda::clip_factor(factor, norm, loss, settings);
  fail_no_kernel(op, factor.device());
}

}  // namespace tessera
