#include "kernels/gradient_norm/op.h"

#include <limits>

#include "kernels/checks.h"
#include "kernels/gradient_norm/exact_sum.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
GradientNorm GradientNorm::empty() {
  GradientNorm norm;
  norm.words_ = Tensor::empty({kNormWords}, DType::i64);
  return norm;
}

GradientNorm GradientNorm::empty_on_host() {
  GradientNorm norm;
  norm.words_ = Tensor::empty_on_host({kNormWords}, DType::i64);
  return norm;
}

GradientNorm GradientNorm::in(const Tensor& words) {
  check_dtype("GradientNorm", {"words", words}, DType::i64);
  check_shape("GradientNorm", {"words", words}, {kNormWords});
  GradientNorm norm;
  norm.words_ = words;
  return norm;
}

double GradientNorm::value() const {
  const auto words = words_.to_vector<std::int64_t>();
  return of_words(std::span(words).first<kNormWords>());
}

double GradientNorm::of_words(std::span<const std::int64_t, kNormWords> words) {
  if (words[kNanWord] > 0) return std::numeric_limits<double>::quiet_NaN();
  if (words[kInfinityWord] > 0) return std::numeric_limits<double>::infinity();
  return root_of_words(words.first<kSquareWords>());
}

void sum_of_squares(const GradientNorm& norm, std::span<const Tensor> tensors) {
  constexpr std::string_view op = "sum_of_squares";
  const Tensor& words = norm.words();
  for (const Tensor& tensor : tensors) {
    check_on_one_device(op, {{"norm", words}, {"x", tensor}});
    check_floating(op, {"x", tensor});
    check_same_dtype(op, {"x", tensor}, {"the first x", tensors.front()});
    check(tensor.dtype() != DType::f64, "{}: x is {}; its dtype must be f32, bf16 or f16", op,
          describe(tensor));
  }
  run_on<cpu::sum_of_squares, cuda::sum_of_squares>(words.device(), op, words, tensors);
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
  run_on<cpu::clip_factor, cuda::clip_factor>(factor.device(), op, factor, norm, loss, settings);
}

}  // namespace tessera
