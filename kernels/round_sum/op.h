// The end of a product with sums in f32: bias, residual, and one rounding.
//
//   y[n, c] = residual[n, c] + (sums[n, c] + bias[c])
//
//   y, residual [..., C] and bias [C] of one floating dtype; sums of y's shape, f32 (f64 for f64)
//
// bias and residual may be undefined. y may be residual or, of one dtype, sums. The result is rounded
// once.
#pragma once

#include "kernels/op.h"

namespace tessera {

void round_sum(Out y, const Tensor& sums, const Tensor& bias, const Tensor& residual);

namespace cpu {
decltype(tessera::round_sum) round_sum;
}
namespace cuda {
decltype(tessera::round_sum) round_sum;
}

}  // namespace tessera
