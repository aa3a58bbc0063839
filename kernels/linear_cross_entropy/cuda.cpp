#include <algorithm>
#include <vector>

#include "kernels/cross_entropy/rows.h"
#include "kernels/cuda/gemm.h"
#include "kernels/linear_cross_entropy/op.h"
#include "kernels/scale/op.h"
#include "runtime/category.h"

namespace tessera::cuda {
namespace {

/// Rows of logits begin at multiples of 64 elements, whatever V is: products and the softmax read
/// and write whole vectors (GPT-2 has 50,257 words).
std::int64_t padded(std::int64_t classes) {
  return (classes + 63) / 64 * 64;
}

/// Classes [first, first + count) of the weight, which the products take together.
struct Part {
  std::int64_t first, count;
};

/// The products of 16-bit operands run at full speed only if the number of classes is a multiple of
/// 8: on an H100 those of 50,257 classes take 6 times as long as those of 50,256. So a large
/// vocabulary is cut into two parts, the multiple and the rest.
std::vector<Part> parts_of(std::int64_t classes, DType dtype) {
  constexpr std::int64_t kStep = 16, kLarge = 1024;
  const std::int64_t rest = classes % kStep;
  if (rest == 0 || classes < kLarge || size_of(dtype) != 2) return {{0, classes}};
  return {{0, classes - rest}, {classes - rest, rest}};
}

/// The three products of a chunk, x [rows, C] and weight [V, C], around its logits [rows, stride].
class Head {
 public:
  Head(const Tensor& x, const Tensor& weight, const Tensor& logits)
      : x_(x), weight_(weight), logits_(logits), parts_(parts_of(weight.size(0), x.dtype())) {}

  void logits() const {
    for (const Part& part : parts_) {
      gemm({.M = rows(),
            .N = part.count,
            .K = channels(),
            .transpose_b = true,
            .in = x_.dtype(),
            .out = logits_.dtype(),
            .c_stride = logits_.size(1)},
           {.a = x_.raw(), .b = weights(part), .c = logits(part)});
    }
  }
  void input_gradient(Out dx) const {
    for (const Part& part : parts_) {
      gemm({.M = rows(),
            .N = channels(),
            .K = part.count,
            .accumulate = part.first > 0,
            .in = x_.dtype(),
            .out = dx.dtype(),
            .a_stride = logits_.size(1)},
           {.a = logits(part), .b = weights(part), .c = dx.raw()});
    }
  }
  void weight_gradient(Out dweight, Accumulate accumulate) const {
    for (const Part& part : parts_) {
      gemm({.M = part.count,
            .N = channels(),
            .K = rows(),
            .transpose_a = true,
            .accumulate = accumulate == Accumulate::yes,
            .in = x_.dtype(),
            .out = dweight.dtype(),
            .a_stride = logits_.size(1)},
           {.a = logits(part),
            .b = x_.raw(),
            .c = dweight.slice(part.first, part.first + part.count).raw()});
    }
  }

 private:
  std::int64_t rows() const { return x_.size(0); }
  std::int64_t channels() const { return x_.size(1); }

  /// The part's first row of the weight, and its first column of the logits.
  void* weights(const Part& part) const {
    return weight_.slice(part.first, part.first + part.count).raw();
  }
  void* logits(const Part& part) const {
    return logits_.reshape({logits_.numel()}).slice(part.first, logits_.numel()).raw();
  }

  const Tensor &x_, &weight_, &logits_;
  std::vector<Part> parts_;
};

}  // namespace

void linear_cross_entropy(Out loss, Out dx, Out dweight, const Tensor& x, const Tensor& weight,
                          const Targets& targets, double loss_scale, Accumulate accumulate_dweight,
                          int ignore_index, std::int64_t chunk, const Tensor& factors) {
  const CategoryScope scope(Category::workspace);
  const StepValue<float> scale = loss_factor(loss_scale);
  const std::int64_t tokens = x.size(0), classes = weight.size(0);
  const bool by_rows = loss.numel() != 1;
  const Tensor losses = by_rows ? loss : Tensor::empty({tokens}, DType::f32);
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
    losses_and_gradients_of_rows(chunk_losses, rows, scale,
                                 factors.defined() ? factors.slice(begin, end) : factors);
    if (dx.defined()) head.input_gradient(dx.slice(begin, end));
    if (dweight.defined()) {
      head.weight_gradient(dweight, begin == 0 ? accumulate_dweight : Accumulate::yes);
    }
  }
  by_rows ? tessera::scale(loss, loss, loss_scale) : scaled_sum(loss, losses, scale);
}

}  // namespace tessera::cuda
