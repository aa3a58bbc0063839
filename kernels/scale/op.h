// Multiplication by a number: y = factor * x.
//
//   equal shapes; y may be x. Backward is scale(dx, dy).
#pragma once

#include "kernels/op.h"

namespace tessera {

void scale(Out y, const Tensor& x, double factor);

namespace cpu {
decltype(tessera::scale) scale;
}
namespace cuda {
decltype(tessera::scale) scale;
}

}  // namespace tessera
