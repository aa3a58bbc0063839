// Cross-entropy of a softmax over the last dimension.
//
//   loss[n] = logsumexp(logits[n, :]) - logits[n, targets[n]],  0 where targets[n] = ignore_index
//   dlogits[n, v] = dloss[n] * (softmax(logits[n, :])[v] - [v = targets[n]]),  0 where ignored
//
//   logits [N, V] floating; targets [N] i32; loss, dloss, logsumexp [N] f32 (f64 for f64);
//   logsumexp is saved for backward. dlogits may be logits. A target outside [0, V) that is not
//   ignore_index raises Error that names its row: at once on the CPU, and on a GPU when the
//   stream is next synchronized (until then it counts as ignored).
//
// A row may have K targets with weights that add up to 1, a distribution over few classes:
//
//   loss[n] = logsumexp(logits[n, :]) - sum over k of weights[n, k] logits[n, targets[n, k]]
//   dlogits[n, v] = dloss[n] * (softmax(logits[n, :])[v] - (weight of v among them, or 0))
//
//   targets [N, K] i32, weights [N, K] f32. A row's targets are distinct. One that is ignore_index is no
//   target, and a row whose first is ignore_index is ignored.
#pragma once

#include <utility>

#include "kernels/op.h"

namespace tessera {

/// PyTorch's convention for positions that have no target.
inline constexpr int kIgnoreIndex = -100;

/// The most targets of a row.
inline constexpr std::int64_t kMostTargets = 1024;

/// The targets of N rows: classes [N], or classes and weights [N, K]. Those of tokens are [B, T] or [B, T, K]
/// until they are rows.
struct Targets {
  Tensor classes;
  Tensor weights;

  Targets(Tensor classes = {}, Tensor weights = {})
      : classes(std::move(classes)), weights(std::move(weights)) {}

  bool defined() const { return classes.defined(); }
  std::int64_t rows() const { return classes.size(0); }
  /// K.
  std::int64_t each() const { return weights.defined() ? weights.size(-1) : 1; }
  /// Those of tokens as rows.
  Targets as_rows() const {
    if (!weights.defined()) return classes.reshape({classes.numel()});
    const Shape rows{classes.numel() / each(), each()};
    return {classes.reshape(rows), weights.reshape(rows)};
  }
  Targets slice(std::int64_t first, std::int64_t last) const {
    return {classes.slice(first, last), weights.defined() ? weights.slice(first, last) : weights};
  }
};

void cross_entropy_forward(Out loss, Out logsumexp, const Tensor& logits, const Targets& targets,
                           int ignore_index = kIgnoreIndex);
void cross_entropy_backward(Out dlogits, const Tensor& dloss, const Tensor& logits,
                            const Tensor& logsumexp, const Targets& targets,
                            int ignore_index = kIgnoreIndex);

namespace cpu {
decltype(tessera::cross_entropy_forward) cross_entropy_forward;
decltype(tessera::cross_entropy_backward) cross_entropy_backward;
}  // namespace cpu
namespace cuda {
decltype(tessera::cross_entropy_forward) cross_entropy_forward;
decltype(tessera::cross_entropy_backward) cross_entropy_backward;
}  // namespace cuda

}  // namespace tessera
