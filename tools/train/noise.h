// What yardsticks and kernels are timed on.
#pragma once

#include "runtime/tensor.h"

namespace tessera {

/// Uniform values in [-1/2, 1/2): not zeros, which flatter some machines and let a GPU clock
/// higher, because few bits change. Repeats after a million elements. On the current context's
/// device; f32 or 16-bit.
Tensor noise(const Shape& shape, DType dtype);

}  // namespace tessera
