// Cross-entropy of a softmax over the last dimension.
//
//   loss[n] = logsumexp(logits[n, :]) - logits[n, targets[n]],  0 where targets[n] = ignore_index
//   dlogits[n, v] = dloss[n] * (softmax(logits[n, :])[v] - [v = targets[n]]),  0 where ignored
//
//   logits [N, V] floating; targets [N] i32; loss, dloss, logsumexp [N] f32 (f64 for f64);
//   logsumexp is saved for backward. dlogits may be logits. A target outside [0, V) that is not
//   ignore_index raises Error that names its position: at once on the CPU, and on a GPU when the
//   stream is next synchronized (until then the row counts as ignored).
#pragma once

#include "kernels/op.h"

namespace tessera {

/// PyTorch's convention for positions that have no target.
inline constexpr int kIgnoreIndex = -100;

void cross_entropy_forward(Out loss, Out logsumexp, const Tensor& logits, const Tensor& targets,
                           int ignore_index = kIgnoreIndex);
void cross_entropy_backward(Out dlogits, const Tensor& dloss, const Tensor& logits,
                            const Tensor& logsumexp, const Tensor& targets,
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
