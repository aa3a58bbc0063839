#include "kernels/linear_cross_entropy/op.h"

#include <algorithm>
#include <string_view>

#include "kernels/cast/op.h"
#include "kernels/checks.h"
#include "kernels/cross_entropy/targets.h"
#include "kernels/matmul/op.h"
#include "kernels/reduce/op.h"
#include "kernels/scale/op.h"
#include "runtime/category.h"
#include "runtime/check.h"

namespace tessera {
namespace {

constexpr std::string_view kOp = "linear_cross_entropy";

void check_arguments(const Tensor& loss, const Tensor& dx, const Tensor& dweight, const Tensor& x,
                     const Tensor& weight, const Tensor& targets, std::int64_t chunk) {
  check_on_one_device(kOp, {{"loss", loss}, {"x", x}, {"weight", weight}, {"targets", targets}});
  check_same_floating(kOp, {{"x", x}, {"weight", weight}});
  check_rank(kOp, {"x", x}, 2);
  check_rank(kOp, {"weight", weight}, 2);
  check(x.size(1) == weight.size(1),
        "{}: x is {} and weight is {}; their last dimensions must be equal", kOp, describe(x),
        describe(weight));
  check_dtype(kOp, {"targets", targets}, DType::i32);
  check_shape(kOp, {"targets", targets}, {x.size(0)});
  check_dtype(kOp, {"loss", loss}, statistics_dtype(x.dtype()));
  check_shape(kOp, {"loss", loss}, {1});
  check(chunk >= 1, "{}: a chunk of {} rows; it needs at least one", kOp, chunk);
  if (dx.defined()) {
    check_on_one_device(kOp, {{"dx", dx}, {"x", x}});
    check_same_dtype(kOp, {"dx", dx}, {"x", x});
    check_same_shape(kOp, {"dx", dx}, {"x", x});
    check_apart(kOp, {"dx", dx}, {"x", x});
    check_apart(kOp, {"dx", dx}, {"weight", weight});
  }
  if (dweight.defined()) {
    check_on_one_device(kOp, {{"dweight", dweight}, {"weight", weight}});
    check_same_dtype_or_f32(kOp, {"dweight", dweight}, {"weight", weight});
    check_same_shape(kOp, {"dweight", dweight}, {"weight", weight});
    check_apart(kOp, {"dweight", dweight}, {"x", x});
    check_apart(kOp, {"dweight", dweight}, {"weight", weight});
  }
}

/// The memory that one chunk after the other works in.
struct ChunkWorkspace {
  Tensor logits;     // [chunk, V] f32 or f64; becomes dlogits in place
  Tensor logsumexp;  // [chunk]
  Tensor dloss;      // [chunk], each the loss's factor

  ChunkWorkspace(std::int64_t chunk, std::int64_t classes, DType dtype, double loss_scale)
      : logits(Tensor::empty({chunk, classes}, dtype)),
        logsumexp(Tensor::empty({chunk}, dtype)),
        dloss(Tensor::full({chunk}, dtype, loss_scale)) {}
};

}  // namespace

void linear_cross_entropy(Out loss, Out dx, Out dweight, const Tensor& x, const Tensor& weight,
                          const Tensor& targets, double loss_scale, Accumulate accumulate_dweight,
                          int ignore_index, std::int64_t chunk) {
  check_arguments(loss, dx, dweight, x, weight, targets, chunk);
  // All at once, so that nothing is written before and positions are those of the whole batch.
  if (x.device().is_cpu()) cpu::check_targets(kOp, targets, weight.size(0), ignore_index);
  const CategoryScope scope(Category::workspace);
  const DType dtype = statistics_dtype(x.dtype());
  const std::int64_t tokens = x.size(0);
  // Every chunk multiplies with the weight twice: it is widened once, not by each product.
  const Tensor wide_weight = widened(weight);
  const Tensor losses = Tensor::empty({tokens}, dtype);
  const ChunkWorkspace workspace(std::min(chunk, tokens), weight.size(0), dtype, loss_scale);
  if (tokens == 0 && dweight.defined() && accumulate_dweight == Accumulate::no) dweight.zero();
  for (std::int64_t begin = 0; begin < tokens; begin += chunk) {
    const std::int64_t end = std::min(tokens, begin + chunk);
    const Tensor chunk_x = widened(x.slice(begin, end));
    const Tensor chunk_targets = targets.slice(begin, end);
    const Tensor logits = workspace.logits.slice(0, end - begin);
    const Tensor logsumexp = workspace.logsumexp.slice(0, end - begin);
    matmul(logits, chunk_x, wide_weight, Transpose::no, Transpose::yes);
    cross_entropy_forward(losses.slice(begin, end), logsumexp, logits, chunk_targets, ignore_index);
    if (!dx.defined() && !dweight.defined()) continue;
    const Tensor& dlogits = logits;
    cross_entropy_backward(dlogits, workspace.dloss.slice(0, end - begin), logits, logsumexp,
                           chunk_targets, ignore_index);
    if (dx.defined()) matmul(dx.slice(begin, end), dlogits, wide_weight);
    if (dweight.defined()) {
      matmul(dweight, dlogits, chunk_x, Transpose::yes, Transpose::no,
             begin == 0 ? accumulate_dweight : Accumulate::yes);
    }
  }
  sum(loss, losses);
  scale(loss, loss, loss_scale);
}

}  // namespace tessera
