// The head's loss where tensor-parallel ranks share out the vocabulary.
//
// A rank has the logits of its own classes, in parts that do not depend on the number of ranks. Each part
// has a maximum, a sum of exponentials and perhaps the target's logit for every row. These three numbers
// travel, not the logits (kernels/vocabulary_cross_entropy/op.h).
#pragma once

#include "autograd/operations.h"

namespace tessera {

/// Where the gradients of a head are written; undefined where none is wanted.
struct HeadGradients {
  Tensor dx;                               // of all rows: this rank's summand, f32 (f64)
  Tensor dweight;                          // of the rank's part of the weight
  Accumulate accumulate = Accumulate::no;  // of dweight
};

/// The kernel linear_cross_entropy of all rows x [N, C], with this rank's part of the weight. Every rank has
/// the whole loss, [1] or [N], and the same factors. A collective.
void divided_cross_entropy(Out loss, const HeadGradients& gradients, const Tensor& x,
                           const Parameter& weight, const Targets& targets, double loss_scale,
                           int ignore_index, std::int64_t chunk, const Tensor& factors);

}  // namespace tessera
