// Conversion between floating dtypes: y = x in y's dtype, equal shapes, any pair of f32, bf16, f16,
// f64. Narrowing rounds to nearest, ties to even. Backward is cast(dx, dy).
#pragma once

#include "kernels/op.h"

namespace tessera {

void cast(Out y, const Tensor& x);

/// x itself, or an f32 copy of a 16-bit x, charged to `workspace`: for an operand that the CPU,
/// which multiplies in f32, reads in several products.
Tensor widened(const Tensor& x);

namespace cpu {
decltype(tessera::cast) cast;
}
namespace cuda {
decltype(tessera::cast) cast;
}

}  // namespace tessera
