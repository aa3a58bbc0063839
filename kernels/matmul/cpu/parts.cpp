// Sums in parts on the CPU.
#include "kernels/matmul/parts.h"

#include "kernels/add/op.h"
#include "kernels/matmul/cpu/pieces.h"
#include "kernels/matmul/cpu/product.h"
#include "kernels/matmul/narrow.h"
#include "runtime/category.h"

namespace tessera::cpu {
namespace {

/// The factors of all parts.
struct Factors {
  const Tensor &a, &b;
  bool transpose_a, transpose_b;

  /// The product from depth `first` on, and its list.
  Product product(const Tensor& c, std::int64_t first, std::int64_t K) const {
    const std::int64_t a_row = a.size(1), b_row = b.size(1);
    return {.M = c.size(0),
            .N = c.size(1),
            .K = K,
            .a = element(a, transpose_a ? first * a_row : first),
            .b = element(b, transpose_b ? first : first * b_row),
            .c = c.raw(),
            .a_row = a_row,
            .b_row = b_row,
            .c_row = c.size(1)};
  }
  ProductList list(const Tensor& c, std::int64_t K, bool accumulate) const {
    return {.in = a.dtype(),
            .out = c.dtype(),
            .transpose_a = transpose_a,
            .transpose_b = transpose_b,
            .accumulate = accumulate,
            .M = c.size(0),
            .N = c.size(1),
            .K = K,
            .count = 1,
            .rows = c.size(0)};
  }
  /// c (+)= the product of a range, in the dtype of its sums.
  void multiply(const Tensor& c, const DepthRange& range, bool accumulate) const {
    const Product one = product(c, range.first, range.count);
    multiply_by_panels({&one, 1}, list(c, range.count, accumulate));
  }
  /// c (+)= the parts' sum, in one round.
  void multiply(const Tensor& c, std::span<const DepthPart> parts, bool accumulate) const {
    ProductList in_parts = list(c, 0, accumulate);
    in_parts.parts = parts;
    multiply_in_parts(product(c, 0, 0), in_parts);
  }
};

bool fit_a_round(std::span<const DepthPart> parts) {
  return total_depth(parts) <= kMostDepthOfParts;
}

/// sums [M, N] = the parts' sum.
void form(const Tensor& sums, const Factors& factors, std::span<const DepthPart> parts) {
  if (fit_a_round(parts)) return factors.multiply(sums, parts, false);
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
  const bool adds = accumulate == Accumulate::yes;
  if (fit_a_round(parts)) return factors.multiply(c, parts, adds);
  const DType dtype = statistics_dtype(a.dtype());
  if (c.dtype() == dtype && !adds) return form(c, factors, parts);
  const Tensor sums = Tensor::empty(c.shape(), dtype);
  form(sums, factors, parts);
  c.dtype() == dtype ? tessera::add(c, c, sums) : narrow(c, sums, accumulate);
}

}  // namespace tessera::cpu
