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
  Tensor logits;          // [chunk, V] f32 or f64; becomes dlogits in place
  Tensor narrow_dlogits;  // [chunk, V] in x's dtype, if that has 16 bits: what matmul takes
  Tensor logsumexp;       // [chunk]
  Tensor dloss;           // [chunk], each the loss's factor

  ChunkWorkspace(std::int64_t chunk, std::int64_t classes, DType dtype, bool gradients,
                 double loss_scale)
      : logits(Tensor::empty({chunk, classes}, statistics_dtype(dtype))),
        logsumexp(Tensor::empty({chunk}, statistics_dtype(dtype))) {
    if (!gradients) return;
    if (dtype != statistics_dtype(dtype)) narrow_dlogits = Tensor::empty({chunk, classes}, dtype);
    dloss = Tensor::full({chunk}, statistics_dtype(dtype), loss_scale);
  }

  /// Turns the first rows of logits into dlogits, in a dtype that can be multiplied with x.
  Tensor differentiate(const Tensor& targets, int ignore_index) const {
    const std::int64_t rows = targets.size(0);
    const Tensor chunk_logits = logits.slice(0, rows);
    cross_entropy_backward(chunk_logits, dloss.slice(0, rows), chunk_logits,
                           logsumexp.slice(0, rows), targets, ignore_index);
    if (!narrow_dlogits.defined()) return chunk_logits;
    cast(narrow_dlogits.slice(0, rows), chunk_logits);
    return narrow_dlogits.slice(0, rows);
  }
};

}  // namespace

void linear_cross_entropy(Out loss, Out dx, Out dweight, const Tensor& x, const Tensor& weight,
                          const Tensor& targets, double loss_scale, Accumulate accumulate_dweight,
                          int ignore_index, std::int64_t chunk) {
  check_arguments(loss, dx, dweight, x, weight, targets, chunk);
  // All at once, so that nothing is written before and positions are those of the whole batch.
  if (x.device().is_cpu()) cpu::check_targets(kOp, targets, weight.size(0), ignore_index);
  const CategoryScope scope(Category::workspace);
  const std::int64_t tokens = x.size(0);
  const bool gradients = dx.defined() || dweight.defined();
  const Tensor losses = Tensor::empty({tokens}, statistics_dtype(x.dtype()));
  const ChunkWorkspace workspace(std::min(chunk, tokens), weight.size(0), x.dtype(), gradients,
                                 loss_scale);
  if (tokens == 0 && dweight.defined() && accumulate_dweight == Accumulate::no) dweight.zero();
  for (std::int64_t begin = 0; begin < tokens; begin += chunk) {
    const std::int64_t end = std::min(tokens, begin + chunk);
    const Tensor chunk_x = x.slice(begin, end);
    const Tensor chunk_targets = targets.slice(begin, end);
    const Tensor logits = workspace.logits.slice(0, end - begin);
    matmul(logits, chunk_x, weight, Transpose::no, Transpose::yes);
    cross_entropy_forward(losses.slice(begin, end), workspace.logsumexp.slice(0, end - begin),
                          logits, chunk_targets, ignore_index);
    if (!gradients) continue;
    const Tensor dlogits = workspace.differentiate(chunk_targets, ignore_index);
    if (dx.defined()) matmul(dx.slice(begin, end), dlogits, weight);
    if (dweight.defined()) {
      matmul(dweight, dlogits, chunk_x, Transpose::yes, Transpose::no,
             begin == 0 ? accumulate_dweight : Accumulate::yes);
    }
  }
  sum(loss, losses);
  scale(loss, loss, loss_scale);
}

}  // namespace tessera
