// The checks of a matrix product's arguments.
#pragma once

#include <string_view>

#include "kernels/op.h"

namespace tessera {

/// Devices, dtypes, shapes and overlaps, as kernels/matmul/op.h says. Returns K.
std::int64_t check_product(std::string_view op, const Tensor& c, const Tensor& a, const Tensor& b,
                           Transpose transpose_a, Transpose transpose_b);

}  // namespace tessera
