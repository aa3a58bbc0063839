// RowObjective: a loss of the cross-entropies of rows, other than their sum.
#pragma once

#include <functional>

#include "kernels/op.h"

namespace tessera {

/// Writes the loss [1] of the rows' cross-entropies `losses` [N], and to `factors` [N] its derivatives by each of
/// them, unless that is undefined. All have the dtype of the losses, f32 or f64. No objective: the sum.
using RowObjective = std::function<void(Out loss, Out factors, const Tensor& losses)>;

}  // namespace tessera
