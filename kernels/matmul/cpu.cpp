#include <vector>

#include "kernels/cast/op.h"
#include "kernels/matmul/blocks.h"
#include "kernels/matmul/op.h"

namespace tessera::cpu {
namespace {

/// Computes all products of the batch; `first` is the first.
template <typename T>
void multiply_batch(Product<T> first, std::int64_t batch) {
  std::vector<Product<T>> products;
  for (std::int64_t i = 0; i < batch; ++i) {
    products.push_back(first);
    first.a += first.M * first.K;
    first.b += first.K * first.N;
    first.c += first.M * first.N;
  }
  multiply_all(products, batch);
}

}  // namespace

void matmul(Out c, const Tensor& a, const Tensor& b, Transpose transpose_a, Transpose transpose_b,
            Accumulate accumulate) {
  const std::int64_t K = a.size(transpose_a == Transpose::yes ? -2 : -1);
  const std::int64_t batch = c.rank() == 3 ? c.size(0) : 1;
  if (c.numel() == 0) return;
  if (K == 0) {
    if (accumulate == Accumulate::no) c.zero();
    return;
  }
  const CategoryScope scope(Category::workspace);
  const Tensor wide_a = widened(a), wide_b = widened(b);
  const auto multiply = [&](auto type, const Tensor& to, Accumulate add) {
    using T = decltype(type);
    multiply_batch(Product<T>{.M = c.size(-2),
                              .N = c.size(-1),
                              .K = K,
                              .transpose_a = transpose_a == Transpose::yes,
                              .transpose_b = transpose_b == Transpose::yes,
                              .accumulate = add == Accumulate::yes,
                              .a = wide_a.data<T>(),
                              .b = wide_b.data<T>(),
                              .c = to.data<T>()},
                   batch);
  };
  if (c.dtype() == DType::f64) return multiply(double{}, c, accumulate);
  if (c.dtype() == DType::f32) return multiply(float{}, c, accumulate);
  const Tensor product = Tensor::empty(c.shape(), DType::f32);
  multiply(float{}, product, Accumulate::no);
  narrow(c, product, accumulate);
}

}  // namespace tessera::cpu
