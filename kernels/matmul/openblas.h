// Matrix products by OpenBLAS, to measure the CPU's own against.
//
// A block of c is a call of single-threaded OpenBLAS, and the rank's threads take blocks. The cut
// depends on shapes only, so bits do not depend on the number of threads. But a row's bits depend on
// the rows that are computed with it.
#pragma once

#include <span>

#include "kernels/matmul/cpu/product.h"

namespace tessera::cpu {

/// The same as multiply_all, for f32 and f64 without rounding.
void multiply_by_openblas(std::span<const Product> products, const ProductList& list);

}  // namespace tessera::cpu
