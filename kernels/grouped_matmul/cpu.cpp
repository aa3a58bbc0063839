#include <algorithm>
#include <vector>

#include "kernels/cast/op.h"
#include "kernels/cpu/parallel.h"
#include "kernels/grouped_matmul/op.h"
#include "kernels/matmul/cpu/product.h"
#include "kernels/matmul/narrow.h"
#include "kernels/matmul/op.h"
#include "kernels/swiglu/op.h"
#include "kernels/swiglu/parts.h"
#include "runtime/category.h"
#include "runtime/check.h"
#include "runtime/context.h"

namespace tessera::cpu {
namespace {

/// The numbers of a tensor that decide which work there is. A dry run has no memory to read: zeros.
std::vector<std::int32_t> numbers_of(const Tensor& tensor) {
  const auto count = static_cast<std::size_t>(tensor.numel());
  if (context().is_dry()) return std::vector<std::int32_t>(count);
  const auto* const first = tensor.data<std::int32_t>();
  return {first, first + count};
}

/// The rows of each expert.
struct Groups {
  std::vector<std::int32_t> offsets;
  std::int64_t experts;

  Groups(const Tensor& of_experts, std::int64_t rows)
      : offsets(numbers_of(of_experts)), experts(of_experts.numel() - 1) {
    for (std::int64_t e = 0; e <= experts; ++e) {
      const std::int64_t least = e == 0 ? 0 : first(e - 1), most = e == 0 ? 0 : rows;
      check(least <= first(e) && first(e) <= most,
            "grouped_matmul: offsets[{}] is {}; offsets must ascend from 0 to at most {}", e,
            first(e), rows);
    }
  }
  std::int64_t first(std::int64_t e) const { return offsets[static_cast<std::size_t>(e)]; }
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

/// `finished` is a step for parts of c (matmul/cpu/steps.h), and `sections` are those of its columns.
void multiply_rows(Out c, const Tensor& a, const Tensor& b, const Groups& groups, bool transposed,
                   std::int64_t sections = 1, const ProductSteps::Step& finished = {}) {
  const std::int64_t K = a.size(1), N = c.size(1), matrices = b.size(0);
  std::vector<Product> products;
  std::vector<ProductSteps> steps(static_cast<std::size_t>(groups.experts));
  for_each_expert(groups, [&](std::int64_t e) {
    ProductSteps& of_expert = steps[static_cast<std::size_t>(e)];
    of_expert.sections = sections;
    if (finished) {
      of_expert.finished = [&finished, first = groups.first(e)](Rectangle part) {
        part.row += first;
        finished(part);
      };
    }
    products.push_back({.M = groups.count(e),
                        .N = N / sections,
                        .K = K,
                        .a = element(a, groups.first(e) * K),
                        .b = element(b, e % matrices * K * N),
                        .c = element(c, groups.first(e) * N),
                        .a_row = K,
                        .b_row = transposed ? K : N,
                        .c_row = N,
                        .steps = &of_expert});
  });
  multiply_all(products, {.in = a.dtype(),
                          .out = c.dtype(),
                          .transpose_b = transposed,
                          .M = a.size(0),
                          .N = N / sections,
                          .K = K,
                          .sections = sections,
                          .count = groups.experts,
                          .rows = a.size(0)});
}

/// c (+)= the products over the depths of one range.
void multiply_range(Out c, const Tensor& a, const Tensor& b, const Groups& groups, bool transposed,
                    const DepthRange& range, bool accumulate) {
  const std::int64_t K = a.size(1), N = c.size(1), matrices = b.size(0);
  std::vector<Product> products;
  for_each_expert(groups, [&](std::int64_t e) {
    products.push_back({.M = groups.count(e),
                        .N = N,
                        .K = range.count,
                        .a = element(a, groups.first(e) * K + range.first),
                        .b = element(b, e % matrices * K * N + range.first * (transposed ? 1 : N)),
                        .c = element(c, groups.first(e) * N),
                        .a_row = K,
                        .b_row = transposed ? K : N,
                        .c_row = N});
  });
  multiply_by_panels(products, {.in = a.dtype(),
                                .out = c.dtype(),
                                .transpose_b = transposed,
                                .accumulate = accumulate,
                                .M = a.size(0),
                                .N = N,
                                .K = range.count,
                                .count = groups.experts,
                                .rows = a.size(0)});
}

/// The weights' products of the experts with at most `most` rows.
void multiply_weight(Out c, const Tensor& a, const Tensor& b, const Groups& groups,
                     Accumulate accumulate, std::int64_t most) {
  const std::int64_t M = c.size(1), N = c.size(2);
  std::vector<Product> products;
  for_each_expert(groups, [&](std::int64_t e) {
    if (groups.count(e) > most) return;
    products.push_back({.M = M,
                        .N = N,
                        .K = groups.count(e),
                        .a = element(a, groups.first(e) * M),
                        .b = element(b, groups.first(e) * N),
                        .c = element(c, e * M * N),
                        .a_row = M,
                        .b_row = N,
                        .c_row = N});
  });
  multiply_all(products, {.in = a.dtype(),
                          .out = c.dtype(),
                          .transpose_a = true,
                          .accumulate = accumulate == Accumulate::yes,
                          .M = M,
                          .N = N,
                          .K = std::min(a.size(0), most),
                          .count = groups.experts,
                          .rows = groups.experts * M});
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
  const CategoryScope scope(Category::workspace);
  if (widens_factors(a.dtype())) {
    return cpu::grouped_matmul(c, widened(a), widened(b), offsets, transpose_b);
  }
  if (!rounds_apart(c.dtype(), a.size(1))) return multiply_rows(to, a, b, groups, transposed);
  // For all rows: the size does not depend on the offsets.
  const Tensor sums = Tensor::empty(c.shape(), DType::f32);
  multiply_rows(sums, a, b, groups, transposed);
  narrow(to, sums.slice(0, groups.end()), Accumulate::no);
}

void grouped_matmul_part(Out c, const Tensor& a, const Tensor& b, const Tensor& offsets,
                         Transpose transpose_b, const DepthPart& depths) {
  const Groups groups(offsets, a.size(0));
  if (c.numel() == 0) return;
  const CategoryScope scope(Category::workspace);
  for (const DepthRange& range : depths) {
    multiply_range(c, a, b, groups, transpose_b == Transpose::yes, range, &range != depths.data());
  }
}

void grouped_matmul_swiglu(Out y, Out c, const Tensor& a, const Tensor& b, const Tensor& offsets,
                           Transpose transpose_b) {
  const Groups groups(offsets, a.size(0));
  if (c.numel() == 0) return;
  const Tensor to = c.slice(0, groups.end()), gated = y.slice(0, groups.end());
  const Columns gate = first_half(to), up = second_half(to);
  if (a.size(1) == 0 || widens_factors(a.dtype()) || rounds_apart(c.dtype(), a.size(1))) {
    cpu::grouped_matmul(c, a, b, offsets, transpose_b);
    return cpu::swiglu_forward(gated, gate, up);
  }
  multiply_rows(
      to, a, b, groups, transpose_b == Transpose::yes, /*sections=*/2,
      [&, isa = loop_isa()](const Rectangle& part) { swiglu_forward(isa, part, gated, gate, up); });
}

void grouped_matmul_weight(Out c, const Tensor& a, const Tensor& b, const Tensor& offsets,
                           Accumulate accumulate) {
  const Groups groups(offsets, a.size(0));
  if (c.numel() == 0) return;
  if (accumulate == Accumulate::no) clear_empty(c, groups);
  const CategoryScope scope(Category::workspace);
  if (widens_factors(a.dtype())) {
    return cpu::grouped_matmul_weight(c, widened(a), widened(b), offsets, accumulate);
  }
  if (!rounds_apart(c.dtype(), a.size(0))) {
    return multiply_weight(c, a, b, groups, accumulate, a.size(0));
  }
  // Deep sums one after the other, in memory for one matrix, however many experts have them.
  const Tensor sums = Tensor::empty({c.size(1), c.size(2)}, DType::f32);
  const std::int64_t most = rounds_apart(c.dtype(), 1) ? 0 : kMostRoundedDepth;
  if (most > 0) multiply_weight(c, a, b, groups, accumulate, most);
  for_each_expert(groups, [&](std::int64_t e) {
    if (groups.count(e) <= most) return;
    const auto rows = [&](const Tensor& x) {
      return x.slice(groups.first(e), groups.first(e + 1));
    };
    cpu::matmul(sums, rows(a), rows(b), Transpose::yes, Transpose::no, Accumulate::no);
    narrow(c.slice(e, e + 1), sums.reshape({1, c.size(1), c.size(2)}), accumulate);
  });
}

}  // namespace tessera::cpu
