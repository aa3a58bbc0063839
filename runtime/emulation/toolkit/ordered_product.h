// The product of two matrices of floats.
#pragma once

#include <cstdint>

namespace tessera::emulation {

/// Row-major. Two rows are `stride` elements apart.
struct FloatMatrix {
  const float* data;
  std::int64_t rows, columns, stride;
};

/// c = a b, row-major [a.rows, b.columns]. Each element is one sum in the order of k, so rows that are equal
/// in `a` are equal in `c`, wherever they are and however many there are (see tile_product.h).
void ordered_product(float* c, const FloatMatrix& a, const FloatMatrix& b);

}  // namespace tessera::emulation
