#include <algorithm>

#include "kernels/cuda/gemm.h"
#include "kernels/matmul/narrow.h"
#include "kernels/matmul/op.h"
#include "runtime/category.h"

namespace tessera::cuda {
namespace {

/// The library's limit on the matrices of one call.
constexpr std::int64_t kMostOfABatch = 65535;

void multiply(const Tensor& c, const Tensor& a, const Tensor& b, Gemm product) {
  const std::int64_t batch = c.rank() == 3 ? c.size(0) : 1;
  for (std::int64_t begin = 0; begin < batch; begin += kMostOfABatch) {
    const auto from = [&](const Tensor& x) { return x.raw() + x.bytes() / batch * begin; };
    product.batch = std::min(kMostOfABatch, batch - begin);
    gemm(product, {.a = from(a), .b = from(b), .c = from(c)});
  }
}

}  // namespace

void matmul(Out c, const Tensor& a, const Tensor& b, Transpose transpose_a, Transpose transpose_b,
            Accumulate accumulate) {
  Gemm product{.M = c.size(-2),
               .N = c.size(-1),
               .K = a.size(transpose_a == Transpose::yes ? -2 : -1),
               .transpose_a = transpose_a == Transpose::yes,
               .transpose_b = transpose_b == Transpose::yes,
               .accumulate = accumulate == Accumulate::yes,
               .in = a.dtype(),
               .out = c.dtype()};
  if (c.numel() == 0) return;
  if (product.K == 0) {
    if (!product.accumulate) c.zero();
    return;
  }
  if (size_of(c.dtype()) >= size_of(a.dtype())) return multiply(c, a, b, product);
  // The library does not round products of f32 factors.
  const CategoryScope scope(Category::workspace);
  const Tensor wide = Tensor::empty(c.shape(), DType::f32);
  product.accumulate = false;
  product.out = DType::f32;
  multiply(wide, a, b, product);
  narrow(c, wide, accumulate);
}

}  // namespace tessera::cuda
