// Sums in parts on the CPU.
#include "kernels/matmul/parts.h"

#include "kernels/add/op.h"
#include "kernels/matmul/cpu/product.h"
#include "kernels/matmul/narrow.h"
#include "runtime/category.h"

namespace tessera::cpu {
namespace {

/// The factors of all parts.
struct Factors {
  const Tensor &a, &b;
  bool transpose_a, transpose_b;

  /// c (+)= the product of a range, in the dtype of its sums.
  void multiply(const Tensor& c, const DepthRange& range, bool accumulate) const {
    const std::int64_t a_row = a.size(1), b_row = b.size(1);
    const Product product = {.M = c.size(0),
                             .N = c.size(1),
                             .K = range.count,
                             .a = element(a, transpose_a ? range.first * a_row : range.first),
                             .b = element(b, transpose_b ? range.first : range.first * b_row),
                             .c = c.raw(),
                             .a_row = a_row,
                             .b_row = b_row,
                             .c_row = c.size(1)};
    multiply_by_panels({&product, 1}, {.in = a.dtype(),
                                       .out = c.dtype(),
                                       .transpose_a = transpose_a,
                                       .transpose_b = transpose_b,
                                       .accumulate = accumulate,
                                       .M = product.M,
                                       .N = product.N,
                                       .K = product.K,
                                       .count = 1,
                                       .rows = product.M});
  }
};

/// sums [M, N] = the parts' sum.
void form(const Tensor& sums, const Factors& factors, std::span<const DepthPart> parts) {
  if (parts.size() == 1) {
    for (const DepthRange& range : parts[0]) {
      factors.multiply(sums, range, &range != parts[0].data());
    }
    return;
  }
  form(sums, factors, parts.first(parts.size() / 2));
  const Tensor right = Tensor::empty(sums.shape(), sums.dtype());
  form(right, factors, parts.last(parts.size() / 2));
  tessera::add(sums, sums, right);
}

}  // namespace

void matmul_in_parts(Out c, const Tensor& a, const Tensor& b, Transpose transpose_a,
                     Transpose transpose_b, std::span<const DepthPart> parts,
                     Accumulate accumulate) {
  const Factors factors = {a, b, transpose_a == Transpose::yes, transpose_b == Transpose::yes};
  const CategoryScope scope(Category::workspace);
  const DType dtype = statistics_dtype(a.dtype());
  if (c.dtype() == dtype && accumulate == Accumulate::no) return form(c, factors, parts);
  const Tensor sums = Tensor::empty(c.shape(), dtype);
  form(sums, factors, parts);
  c.dtype() == dtype ? tessera::add(c, c, sums) : narrow(c, sums, accumulate);
}

}  // namespace tessera::cpu
