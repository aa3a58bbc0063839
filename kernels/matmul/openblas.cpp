#include "kernels/matmul/openblas.h"

#include <algorithm>
#include <limits>

#include "kernels/matmul/blas_buffers.h"
#include "kernels/matmul/openblas_library.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/integer.h"

namespace tessera::cpu {

namespace {

/// The sides of a block. Smaller ones repack their operands more often.
constexpr std::int64_t kSide = 384;

int layout(bool transpose) {
  return transpose ? kTransposed : kPlain;
}

template <typename T>
void multiply_block(const Product& p, const ProductList& list, std::int64_t row,
                    std::int64_t column) {
  const auto size = [](std::int64_t extent) { return static_cast<int>(extent); };
  const T* const a = static_cast<const T*>(p.a) + row * (list.transpose_a ? 1 : p.a_row);
  const T* const b = static_cast<const T*>(p.b) + column * (list.transpose_b ? p.b_row : 1);
  T* const c = static_cast<T*>(p.c) + row * p.c_row + column;
  const int M = size(std::min(kSide, p.M - row)), N = size(std::min(kSide, p.N - column));
  const T beta = list.accumulate ? T{1} : T{0};
  const auto call = [&](auto gemm) {
    gemm(kRowMajor, layout(list.transpose_a), layout(list.transpose_b), M, N, size(p.K), T{1}, a,
         size(p.a_row), b, size(p.b_row), beta, c, size(p.c_row));
  };
  if constexpr (sizeof(T) == 4) {
    call(openblas().sgemm);
  } else {
    call(openblas().dgemm);
  }
}

}  // namespace

void multiply_by_openblas(std::span<const Product> products, const ProductList& list) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  check(list.M <= kMost && list.sections * list.N <= kMost && list.K <= kMost,
        "matmul: M = {}, N = {}, K = {}: OpenBLAS' sizes are 32-bit integers; split the product",
        list.M, list.sections * list.N, list.K);
  context().state<BlasBuffers>();
  for (Product p : products) {
    p.N *= list.sections;
    const std::int64_t across = ceil_div(p.N, kSide);
    context().threads().run(ceil_div(p.M, kSide) * across, [&](std::int64_t i) {
      const std::int64_t row = i / across * kSide, column = i % across * kSide;
      if (list.in == DType::f64) {
        multiply_block<double>(p, list, row, column);
      } else {
        multiply_block<float>(p, list, row, column);
      }
    });
  }
}

}  // namespace tessera::cpu
