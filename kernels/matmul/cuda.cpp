#include <algorithm>

#include "kernels/add/op.h"
#include "kernels/cuda/gemm.h"
#include "kernels/matmul/narrow.h"
#include "kernels/matmul/op.h"
#include "kernels/matmul/parts.h"
#include "kernels/tree_reduce/op.h"
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

/// So many sums are added in one pass over memory.
constexpr std::size_t kSumsOfPass = 8;

/// sums [M, N] f32 = the parts' sum. `product` lacks its depth.
class Parts {
 public:
  Parts(const Tensor& a, const Tensor& b, const Gemm& product) : a_(a), b_(b), product_(product) {}

  void form(const Tensor& sums, std::span<const DepthPart> parts) const {
    if (parts.size() == 1) {
      for (const DepthRange& range : parts[0]) {
        multiply(sums, range, &range != parts[0].data());
      }
      return;
    }
    const std::size_t count = std::min(kSumsOfPass, parts.size());
    const std::size_t size = parts.size() / count;
    std::vector<Tensor> subtrees;
    for (std::size_t i = 0; i < count; ++i) {
      subtrees.push_back(Tensor::empty(sums.shape(), DType::f32));
      form(subtrees.back(), parts.subspan(i * size, size));
    }
    tessera::tree_reduce(sums, subtrees, Reduction::sum);
  }

 private:
  void multiply(const Tensor& sums, const DepthRange& range, bool accumulate) const {
    Gemm product = product_;
    product.K = range.count;
    product.accumulate = accumulate;
    gemm(product, {.a = first(a_, range.first, !product.transpose_a),
                   .b = first(b_, range.first, product.transpose_b),
                   .c = sums.raw()});
  }
  /// The first element of a factor's depth `k`.
  static const void* first(const Tensor& x, std::int64_t k, bool depth_contiguous) {
    const std::int64_t elements = depth_contiguous ? k : k * x.size(1);
    return x.raw() + elements * static_cast<std::int64_t>(size_of(x.dtype()));
  }

  const Tensor &a_, &b_;
  const Gemm product_;
};

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

void matmul_in_parts(Out c, const Tensor& a, const Tensor& b, Transpose transpose_a,
                     Transpose transpose_b, std::span<const DepthPart> parts,
                     Accumulate accumulate) {
  const Parts sum(a, b,
                  {.M = c.size(0),
                   .N = c.size(1),
                   .transpose_a = transpose_a == Transpose::yes,
                   .transpose_b = transpose_b == Transpose::yes,
                   .in = a.dtype(),
                   .out = DType::f32,
                   .a_stride = a.size(1),
                   .b_stride = b.size(1)});
  const CategoryScope scope(Category::workspace);
  if (c.dtype() == DType::f32 && accumulate == Accumulate::no) return sum.form(c, parts);
  const Tensor sums = Tensor::empty(c.shape(), DType::f32);
  sum.form(sums, parts);
  c.dtype() == DType::f32 ? tessera::add(c, c, sums) : narrow(c, sums, accumulate);
}

}  // namespace tessera::cuda
