#include <vector>

#include "kernels/cast/op.h"
#include "kernels/matmul/cpu/product.h"
#include "kernels/matmul/cpu/steps.h"
#include "kernels/matmul/narrow.h"
#include "kernels/matmul/op.h"

namespace tessera::cpu {
namespace {

/// All of c is complete.
void finish(const Tensor& c, const ProductSteps& steps) {
  visit_rows(steps.finished, c.numel() / c.size(-1), c.size(-1) / steps.sections);
}

/// Computes all products of the batch. `list` has their extents and transpositions.
void multiply_batch(const Tensor& c, const Tensor& a, const Tensor& b, ProductList list,
                    const ProductSteps& steps) {
  const std::int64_t batch = c.rank() == 3 ? c.size(0) : 1;
  const Product first = {.M = list.M,
                         .N = list.N,
                         .K = list.K,
                         .a_row = a.size(-1),
                         .b_row = b.size(-1),
                         .c_row = c.size(-1),
                         .steps = &steps};
  std::vector<Product> products(static_cast<std::size_t>(batch), first);
  for (std::int64_t i = 0; i < batch; ++i) {
    Product& p = products[static_cast<std::size_t>(i)];
    p.a = element(a, i * p.M * p.K);
    p.b = element(b, i * p.K * c.size(-1));
    p.c = element(c, i * p.M * c.size(-1));
  }
  list.in = a.dtype(), list.out = c.dtype();
  list.count = batch, list.rows = batch * list.M;
  multiply_all(products, list);
}

}  // namespace

void matmul(Out c, const Tensor& a, const Tensor& b, Transpose transpose_a, Transpose transpose_b,
            Accumulate accumulate) {
  matmul(c, a, b, transpose_a, transpose_b, accumulate, {});
}

void matmul(Out c, const Tensor& a, const Tensor& b, Transpose transpose_a, Transpose transpose_b,
            Accumulate accumulate, const ProductSteps& steps) {
  const std::int64_t K = a.size(transpose_a == Transpose::yes ? -2 : -1);
  if (c.numel() == 0) return;
  if (K == 0) {
    if (accumulate == Accumulate::no) c.zero();
    return finish(c, steps);
  }
  ProductList list = {.transpose_a = transpose_a == Transpose::yes,
                      .transpose_b = transpose_b == Transpose::yes,
                      .accumulate = accumulate == Accumulate::yes,
                      .M = c.size(-2),
                      .N = c.size(-1) / steps.sections,
                      .K = K,
                      .sections = steps.sections};
  const CategoryScope scope(Category::workspace);
  if (widens_factors(a.dtype())) {
    return cpu::matmul(c, widened(a), widened(b), transpose_a, transpose_b, accumulate, steps);
  }
  if (!rounds_apart(c.dtype(), K)) return multiply_batch(c, a, b, list, steps);
  const Tensor sums = Tensor::empty(c.shape(), DType::f32);
  list.accumulate = false;
  multiply_batch(sums, a, b, list,
                 {.sections = steps.sections, .reads_a = steps.reads_a, .reads_b = steps.reads_b});
  narrow(c, sums, accumulate);
  finish(c, steps);
}

}  // namespace tessera::cpu
