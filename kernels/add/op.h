// Elementwise sum: y = a + b, equal shapes. y may be a or b. Backward is the identity on both
// sides.
#pragma once

#include "kernels/op.h"

namespace tessera {

void add(Out y, const Tensor& a, const Tensor& b);

namespace cpu {
decltype(tessera::add) add;
}
namespace cuda {
decltype(tessera::add) add;
}

}  // namespace tessera
