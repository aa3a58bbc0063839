#include <algorithm>

#include "kernels/cross_entropy/rows.h"
#include "kernels/cuda/gemm.h"
#include "kernels/linear_cross_entropy/op.h"
#include "runtime/category.h"

namespace tessera::cuda {
namespace {

/// Rows of logits begin at multiples of 64 elements, whatever V is: products and the softmax read
/// and write whole vectors (GPT-2 has 50,257 words).
std::int64_t padded(std::int64_t classes) {
  return (classes + 63) / 64 * 64;
}

/// The three products of a chunk, x [rows, C] and weight [V, C], around its logits [rows, stride].
class Head {
 public:
  Head(const Tensor& x, const Tensor& weight, const Tensor& logits)
      : x_(x), weight_(weight), logits_(logits) {}

  void logits() const {
    gemm({.M = rows(),
          .N = classes(),
          .K = channels(),
          .transpose_b = true,
          .in = x_.dtype(),
          .out = logits_.dtype(),
          .c_stride = logits_.size(1)},
         {.a = x_.raw(), .b = weight_.raw(), .c = logits_.raw()});
  }
  void input_gradient(Out dx) const {
    gemm({.M = rows(),
          .N = channels(),
          .K = classes(),
          .in = x_.dtype(),
          .out = dx.dtype(),
          .a_stride = logits_.size(1)},
         {.a = logits_.raw(), .b = weight_.raw(), .c = dx.raw()});
  }
  void weight_gradient(Out dweight, Accumulate accumulate) const {
    gemm({.M = classes(),
          .N = channels(),
          .K = rows(),
          .transpose_a = true,
          .accumulate = accumulate == Accumulate::yes,
          .in = x_.dtype(),
          .out = dweight.dtype(),
          .a_stride = logits_.size(1)},
         {.a = logits_.raw(), .b = x_.raw(), .c = dweight.raw()});
  }

 private:
  std::int64_t rows() const { return x_.size(0); }
  std::int64_t channels() const { return x_.size(1); }
  std::int64_t classes() const { return weight_.size(0); }

  const Tensor &x_, &weight_, &logits_;
};

}  // namespace

void linear_cross_entropy(Out loss, Out dx, Out dweight, const Tensor& x, const Tensor& weight,
                          const Tensor& targets, double loss_scale, Accumulate accumulate_dweight,
                          int ignore_index, std::int64_t chunk) {
  const CategoryScope scope(Category::workspace);
  const std::int64_t tokens = x.size(0), classes = weight.size(0);
  const Tensor losses = Tensor::empty({tokens}, DType::f32);
  const Tensor workspace = Tensor::empty({std::min(chunk, tokens), padded(classes)}, x.dtype());
  if (tokens == 0 && dweight.defined() && accumulate_dweight == Accumulate::no) dweight.zero();
  for (std::int64_t begin = 0; begin < tokens; begin += chunk) {
    const std::int64_t end = std::min(tokens, begin + chunk);
    const Tensor chunk_x = x.slice(begin, end), logits = workspace.slice(0, end - begin);
    const Tensor chunk_losses = losses.slice(begin, end);
    const LogitRows rows{logits, classes, targets.slice(begin, end), begin, ignore_index};
    const Head head(chunk_x, weight, logits);
    head.logits();
    if (!dx.defined() && !dweight.defined()) {
      losses_of_rows(chunk_losses, rows);
      continue;
    }
    losses_and_gradients_of_rows(chunk_losses, rows, static_cast<float>(loss_scale));
    if (dx.defined()) head.input_gradient(dx.slice(begin, end));
    if (dweight.defined()) {
      head.weight_gradient(dweight, begin == 0 ? accumulate_dweight : Accumulate::yes);
    }
  }
  scaled_sum(loss, losses, static_cast<float>(loss_scale));
}

}  // namespace tessera::cuda
