#include <algorithm>
#include <vector>

#include "kernels/cast/op.h"
#include "kernels/grouped_matmul/op.h"
#include "kernels/matmul/blocks.h"
#include "runtime/category.h"
#include "runtime/check.h"

namespace tessera::cpu {
namespace {

/// An expert's product is cut as if the list had this many like it. Were it the number of experts,
/// the bits would depend on how many experts a rank has.
constexpr std::int64_t kParallel = 8;

/// The rows of each expert.
struct Groups {
  const std::int32_t* offsets;
  std::int64_t experts;

  Groups(const Tensor& offsets, std::int64_t rows)
      : offsets(offsets.data<std::int32_t>()), experts(offsets.numel() - 1) {
    for (std::int64_t e = 0; e <= experts; ++e) {
      const std::int64_t least = e == 0 ? 0 : first(e - 1), most = e == 0 ? 0 : rows;
      check(least <= first(e) && first(e) <= most,
            "grouped_matmul: offsets[{}] is {}; offsets must ascend from 0 to at most {}", e,
            first(e), rows);
    }
  }
  std::int64_t first(std::int64_t e) const { return offsets[e]; }
  std::int64_t count(std::int64_t e) const { return first(e + 1) - first(e); }
  std::int64_t end() const { return first(experts); }
};

/// Calls f(e) for the experts with rows.
template <typename F>
void for_each_expert(const Groups& groups, const F& f) {
  for (std::int64_t e = 0; e < groups.experts; ++e) {
    if (groups.count(e) > 0) f(e);
  }
}

template <typename T>
void multiply_rows(Out c, const Tensor& a, const Tensor& b, const Groups& groups, bool transposed) {
  const std::int64_t K = a.size(1), N = c.size(1), matrices = b.size(0);
  std::vector<Product<T>> products;
  for_each_expert(groups, [&](std::int64_t e) {
    products.push_back({.M = groups.count(e),
                        .N = N,
                        .K = K,
                        .transpose_b = transposed,
                        .a = a.data<T>() + groups.first(e) * K,
                        .b = b.data<T>() + e % matrices * K * N,
                        .c = c.data<T>() + groups.first(e) * N});
  });
  multiply_all(products, kParallel);
}

template <typename T>
void multiply_weight(Out c, const Tensor& a, const Tensor& b, const Groups& groups,
                     Accumulate accumulate) {
  const std::int64_t M = c.size(1), N = c.size(2);
  std::vector<Product<T>> products;
  for_each_expert(groups, [&](std::int64_t e) {
    products.push_back({.M = M,
                        .N = N,
                        .K = groups.count(e),
                        .transpose_a = true,
                        .accumulate = accumulate == Accumulate::yes,
                        .a = a.data<T>() + groups.first(e) * M,
                        .b = b.data<T>() + groups.first(e) * N,
                        .c = c.data<T>() + e * M * N});
  });
  multiply_all(products, kParallel);
}

/// Sets the matrices of experts without rows to zero.
void clear_empty(Out c, const Groups& groups) {
  for (std::int64_t e = 0; e < groups.experts; ++e) {
    if (groups.count(e) == 0) c.slice(e, e + 1).zero();
  }
}

}  // namespace

void grouped_matmul(Out c, const Tensor& a, const Tensor& b, const Tensor& offsets,
                    Transpose transpose_b) {
  const Groups groups(offsets, a.size(0));
  if (c.numel() == 0) return;
  const Tensor to = c.slice(0, groups.end());
  if (a.size(1) == 0) return to.zero();
  const bool transposed = transpose_b == Transpose::yes;
  if (c.dtype() == DType::f64) return multiply_rows<double>(to, a, b, groups, transposed);
  if (c.dtype() == DType::f32) return multiply_rows<float>(to, a, b, groups, transposed);
  const CategoryScope scope(Category::workspace);
  // For all rows: the size does not depend on the offsets.
  const Tensor product = Tensor::empty(c.shape(), DType::f32);
  multiply_rows<float>(product, widened(a), widened(b), groups, transposed);
  narrow(to, product.slice(0, groups.end()), Accumulate::no);
}

void grouped_matmul_weight(Out c, const Tensor& a, const Tensor& b, const Tensor& offsets,
                           Accumulate accumulate) {
  const Groups groups(offsets, a.size(0));
  if (c.numel() == 0) return;
  if (accumulate == Accumulate::no) clear_empty(c, groups);
  if (c.dtype() == DType::f64) return multiply_weight<double>(c, a, b, groups, accumulate);
  const CategoryScope scope(Category::workspace);
  const Tensor wide_a = widened(a), wide_b = widened(b);
  if (c.dtype() == DType::f32) return multiply_weight<float>(c, wide_a, wide_b, groups, accumulate);
  const Tensor product = Tensor::empty(c.shape(), DType::f32);
  multiply_weight<float>(product, wide_a, wide_b, groups, Accumulate::no);
  for_each_expert(groups, [&](std::int64_t e) {
    narrow(c.slice(e, e + 1), product.slice(e, e + 1), accumulate);
  });
}

}  // namespace tessera::cpu
