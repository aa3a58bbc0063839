// The gradients of a linear layer's parameters.
#pragma once

#include "autograd/joined_parameters.h"
#include "kernels/op.h"

namespace tessera {

/// Adds to the parameters' gradients of a linear layer with input x and result gradient dy, or defers that.
/// x may be undefined if the weight is frozen.
void accumulate_gradients(const JoinedParameters& weight, const JoinedParameters& bias,
                          const Tensor& x, const Tensor& dy, Transpose transpose);

}  // namespace tessera
