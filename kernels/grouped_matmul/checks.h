// The checks of grouped products (op.h). Their rows may be tokens' rows (gathered.h).
#pragma once

#include "kernels/checks.h"
#include "kernels/grouped_matmul/gathered.h"

namespace tessera {

/// Checks the arguments of a product of rows.
void check_product_of_rows(std::string_view op, const Argument& c, const RoutedRows& a,
                           const Tensor& b, const Tensor& offsets, Transpose transpose_b);
/// The same, and c is gate and up of y.
void check_gated_product(std::string_view op, Out y, Out c, const RoutedRows& a, const Tensor& b,
                         const Tensor& offsets, Transpose transpose_b);
/// Checks the arguments of a product that is the gradient of weighed rows of SwiGLU.
void check_gated_gradient(std::string_view op, Out y, Out dweights, Out dgate_up,
                          const RoutedRows& a, const Tensor& b, const Tensor& gate_up,
                          const Tensor& offsets, const Tensor& places, const Tensor& slots,
                          const Tensor& weights, Transpose transpose_b);
/// Checks the arguments of a weight's gradient.
void check_product_of_weights(std::string_view op, Out c, const RoutedRows& a, const RoutedRows& b,
                              const Tensor& offsets);

}  // namespace tessera
