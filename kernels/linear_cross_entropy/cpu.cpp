#include <algorithm>

#include "kernels/cast/op.h"
#include "kernels/cross_entropy/gradient_rows.h"
#include "kernels/cross_entropy/targets.h"
#include "kernels/linear_cross_entropy/op.h"
#include "kernels/matmul/op.h"
#include "kernels/reduce/op.h"
#include "kernels/scale/op.h"
#include "runtime/category.h"

namespace tessera::cpu {
namespace {

/// Memory that all chunks use, one after the other.
struct ChunkWorkspace {
  Tensor logits;     // [chunk, V] f32 or f64
  Tensor dlogits;    // bf16 as the products of bf16 take them; else the logits themselves
  Tensor logsumexp;  // [chunk]

  ChunkWorkspace(std::int64_t chunk, std::int64_t classes, const Tensor& x, DType dtype)
      : logits(Tensor::empty({chunk, classes}, dtype)),
        dlogits(x.dtype() == DType::bf16 ? Tensor::empty({chunk, classes}, DType::bf16) : logits),
        logsumexp(Tensor::empty({chunk}, dtype)) {}
};

}  // namespace

void linear_cross_entropy(Out loss, Out dx, Out dweight, const Tensor& x, const Tensor& weight,
                          const Targets& targets, double loss_scale, Accumulate accumulate_dweight,
                          int ignore_index, std::int64_t chunk, const Tensor& factors) {
  // Checked for the whole batch, before anything is written. Positions are those in the batch.
  check_targets("linear_cross_entropy", targets, weight.size(0), ignore_index);
  const CategoryScope scope(Category::workspace);
  const DType dtype = statistics_dtype(x.dtype());
  const std::int64_t tokens = x.size(0);
  // Gradients of f16 logits would vanish in 16 bits, so the products of f16 take f32.
  const bool widens = x.dtype() == DType::f16;
  const Tensor factor = widens ? widened(weight) : weight;
  const bool by_rows = loss.shape() == Shape{tokens};
  const Tensor losses = by_rows ? loss : Tensor::empty({tokens}, dtype);
  const ChunkWorkspace workspace(std::min(chunk, tokens), weight.size(0), x, dtype);
  if (tokens == 0 && dweight.defined() && accumulate_dweight == Accumulate::no) dweight.zero();
  for (std::int64_t begin = 0; begin < tokens; begin += chunk) {
    const std::int64_t end = std::min(tokens, begin + chunk);
    const Tensor chunk_x = widens ? widened(x.slice(begin, end)) : x.slice(begin, end);
    const Targets chunk_targets = targets.slice(begin, end);
    const Tensor logits = workspace.logits.slice(0, end - begin);
    tessera::matmul(logits, chunk_x, factor, Transpose::no, Transpose::yes);
    if (!dx.defined() && !dweight.defined()) {
      tessera::cross_entropy_forward(losses.slice(begin, end),
                                     workspace.logsumexp.slice(0, end - begin), logits,
                                     chunk_targets, ignore_index);
      continue;
    }
    const Tensor dlogits = workspace.dlogits.slice(0, end - begin);
    losses_and_gradients(losses.slice(begin, end), dlogits, logits, chunk_targets, loss_scale,
                         factors.defined() ? factors.slice(begin, end) : factors, ignore_index);
    if (dx.defined()) tessera::matmul(dx.slice(begin, end), dlogits, factor);
    if (dweight.defined()) {
      tessera::matmul(dweight, dlogits, chunk_x, Transpose::yes, Transpose::no,
                      begin == 0 ? accumulate_dweight : Accumulate::yes);
    }
  }
  if (!by_rows) tessera::sum(loss, losses);
  tessera::scale(loss, loss, loss_scale);
}

}  // namespace tessera::cpu
