// Activation checkpointing (Chen et al. 2016): compute again instead of keeping.
#pragma once

#include <functional>

#include "autograd/variable.h"

namespace tessera {

/// function(input), of which only `input` is kept for backward. Backward runs `function` again and
/// differentiates that. Because every kernel is deterministic and dropout is addressed, results and
/// gradients have the same bits as without checkpointing. (One exception: the gradient of an input
/// that is used both several times inside and again outside is the same sum in another order.)
/// `function` may use Parameters; it is called a second time during backward, so what it refers to
/// must still be there. If neither `input` nor a Parameter wants a gradient, nothing is kept.
Variable checkpoint(std::function<Variable(const Variable&)> function, const Variable& input);

}  // namespace tessera
