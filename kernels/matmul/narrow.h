// The second step of a product of f32 factors that is stored in 16 bits.
#pragma once

#include "kernels/op.h"

namespace tessera::cuda {

/// c = product, or c += product, rounded once; c 16-bit, product f32.
void narrow(Out c, const Tensor& product, Accumulate accumulate);

}  // namespace tessera::cuda
