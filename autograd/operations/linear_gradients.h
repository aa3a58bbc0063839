// The gradients of a linear layer's parameters.
#pragma once

#include "autograd/joined_parameters.h"
#include "autograd/variable.h"
#include "kernels/linear/factor.h"

namespace tessera {

/// The place for the sum of dy's rows, where y is the result of a layer with this bias. Null if the bias is
/// frozen, if the gradient is summed in parts, and on the CPU, where the product that reads dy adds up its rows.
GradientTotal total_for_bias(const JoinedParameters& bias, const Tensor& y);

/// Adds to the parameters' gradients of a linear layer with input x and result gradient dy, or defers that.
/// x may be undefined if the weight is frozen. dy_total is the sum of dy's rows; it may be undefined.
void accumulate_gradients(const JoinedParameters& weight, const JoinedParameters& bias,
                          const Factor& x, const Factor& dy, Transpose transpose,
                          const Tensor& dy_total = {});

}  // namespace tessera
