// Losses and gradients of rows of logits in one pass, for linear_cross_entropy on the CPU.
#pragma once

#include "kernels/cross_entropy/op.h"

namespace tessera::cpu {

/// losses [rows] in logits' dtype, 0 where ignored; dlogits [rows, classes] = scale * factors[n] * (softmax -
/// targets), zero where ignored. Undefined factors are 1. dlogits may be logits, or bf16 for f32 logits. These
/// are the bits of cross_entropy_forward, of cross_entropy_backward and of a cast, but a row comes from memory
/// once. check_targets must have passed.
void losses_and_gradients(Out losses, Out dlogits, const Tensor& logits, const Targets& targets,
                          double scale, const Tensor& factors, int ignore_index);

}  // namespace tessera::cpu
