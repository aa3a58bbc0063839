// Matrices for the rungs, and the errors of their products.
#pragma once

#include "examples/kernel_ladder/matmul/product.h"
#include "runtime/tensor.h"

namespace tessera::kernel_ladder {

/// Random a [M, K] and b [K, N] of one dtype, an f32 c [M, N] and scratch memory.
struct Operands {
  Operands(std::int64_t M, std::int64_t N, std::int64_t K, DType dtype);

  template <typename T>
  Product<T> product() const {
    return {c.size(0),   c.size(1),       a.size(1),        a.data<T>(),
            b.data<T>(), c.data<float>(), scratch.data<T>()};
  }

  Tensor a, b, c, scratch;
};

/// The largest error of c's elements on the CPU, next to products in f64. The unit is 2^-24 of the sum of an
/// element's absolute products. A chain of K roundings errs by at most K (Higham 2002, section 3.1).
double largest_error(const Product<float>& p);
double largest_error(const Product<bfloat16>& p);
double largest_error(const Operands& operands);

}  // namespace tessera::kernel_ladder
