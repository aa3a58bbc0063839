// Matrix products on the CPU, cut into blocks of the result.
//
// A block is summed in order (in_order.h) or, where op(a) is a transpose, one call of single-threaded
// OpenBLAS. The blocks of all products of a list run in one parallel loop on the rank's threads.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/op.h"

namespace tessera::cpu {

/// c [M, N] = op(a) op(b), or c += op(a) op(b), all row-major; op(a) is [M, K] and op(b) [K, N].
/// K is at least 1.
template <typename T>
struct Product {
  std::int64_t M = 0, N = 0, K = 0;
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;
  const T* a = nullptr;
  const T* b = nullptr;
  T* c = nullptr;
};

/// Computes all products. They must not write the same memory. `parallel` is the number of products
/// like each of these that a list has: with many, each is cut into fewer blocks. The cut depends on
/// a product's shape and on `parallel` alone, so the bits do not depend on the number of threads.
void multiply_all(std::span<const Product<float>> products, std::int64_t parallel);
void multiply_all(std::span<const Product<double>> products, std::int64_t parallel);

/// c = product, or c += product, rounded once; c 16-bit, product f32.
void narrow(Out c, const Tensor& product, Accumulate accumulate);

}  // namespace tessera::cpu
