// The head's loss where tensor-parallel ranks share out the vocabulary.
//
// A rank has the logits of its own classes, in parts that do not depend on the number of ranks. Each part
// has a maximum, a sum of exponentials and perhaps the target's logit for every row. These three numbers
// travel, not the logits (kernels/vocabulary_cross_entropy/op.h).
#pragma once

#include "autograd/operations.h"

namespace tessera {

/// linear_cross_entropy of x, this rank's rows, with the rank's part of the weight and the targets of all
/// rows. Every rank has the whole loss. A collective.
Variable divided_cross_entropy(const Variable& x, const Parameter& weight, const Tensor& targets,
                               double loss_scale, int ignore_index, std::int64_t chunk,
                               FurtherUse further_use);

/// The node of a loss whose gradients exist already: `dx` is that of x.
Variable end_of_graph(const Tensor& loss, const Variable& x, const Parameter& weight,
                      const Tensor& dx);

}  // namespace tessera
