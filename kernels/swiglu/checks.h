// The check of the weights of rows, for the operations that make their gradients (op.h).
#pragma once

#include "kernels/checks.h"

namespace tessera {

/// Rows y [N k, F], weights and places [N, k]. dweights is [N, k] too, or has the sums over S equal parts of the
/// columns. All but y are undefined if no row is weighed.
void check_row_weights(std::string_view op, const Argument& y, const Tensor& dweights,
                       const Tensor& places, const Tensor& weights);

}  // namespace tessera
