// Conversion between floating dtypes: y = x in y's dtype.
//
//   y and x: any pair of f32, bf16, f16 and f64, with equal shapes
//
// Narrowing rounds to nearest, ties to even. Equal dtypes copy the bits. Backward is cast(dx, dy).
#pragma once

#include <span>

#include "kernels/op.h"

namespace tessera {

void cast(Out y, const Tensor& x);

/// Casts xs[i] to ys[i] for every i: on a GPU in one launch, on the CPU in one parallel loop. The
/// element counts of a pair are equal; shapes may differ. All ys have one dtype, and all xs.
void cast_all(std::span<const Tensor> ys, std::span<const Tensor> xs);

/// x itself, or an f32 copy of a 16-bit x, charged to `workspace`.
Tensor widened(const Tensor& x);

// The backends cast lists of pairs; `cast` is a list of one.
namespace cpu {
decltype(tessera::cast_all) cast_all;
}
namespace cuda {
decltype(tessera::cast_all) cast_all;
}

}  // namespace tessera
