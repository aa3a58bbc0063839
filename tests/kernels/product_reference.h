// Matrix products in float64, by Eigen: the expected values of tests.
#pragma once

#include <vector>

#include "kernels/op.h"

namespace tessera::test {

/// op(a) op(b), row by row, with the bounds of its rounding errors.
struct ProductReference {
  std::vector<double> value;
  /// The sum of the magnitudes of an element's terms. Rounding errors are relative to it.
  std::vector<double> magnitude;
  std::int64_t terms = 0;
  /// The dtype in which an operation on the same factors adds.
  DType sum = DType::f32;

  /// Adds the elements of c, as a product that accumulates does.
  void add(const Tensor& c);
  /// Appends the rows of another product.
  void append(const ProductReference& rows);
};

/// Two matrices, or two batches of matrices.
ProductReference product_reference(const Tensor& a, const Tensor& b,
                                   Transpose transpose_a = Transpose::no,
                                   Transpose transpose_b = Transpose::no);

/// The largest error of c in units of the bound: one rounding in c's dtype, and one per term in the
/// sum. Roundings are independent, so their sum grows with the root of their number.
double excess(const Tensor& c, const ProductReference& expected);

}  // namespace tessera::test
