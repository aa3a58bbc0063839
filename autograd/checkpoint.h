// Activation checkpointing (Chen et al. 2016): compute again instead of keeping.
#pragma once

#include <functional>

#include "autograd/variable.h"

namespace tessera {

/// function(input), keeping only `input` for backward. Backward runs `function` again, at the random
/// position of the forward pass, and differentiates that run.
///
/// Results and gradients have the same bits as without checkpointing, because every kernel is
/// deterministic and dropout is addressed. There is one exception: the gradient of an input that is
/// used several times inside and again outside is the same sum in another order.
///
/// `function` may use Parameters. Everything that it refers to must live until backward. If neither
/// `input` nor a Parameter wants a gradient, nothing is kept.
Variable checkpoint(std::function<Variable(const Variable&)> function, const Variable& input);

}  // namespace tessera
