#include "kernels/newton_schulz/op.h"

#include <algorithm>

#include "kernels/checks.h"
#include "kernels/matmul/op.h"
#include "kernels/newton_schulz/parts.h"
#include "runtime/category.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

constexpr std::string_view kOp = "newton_schulz";
constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
constexpr double kEpsilon = 1e-7;

void combine(Out x, double alpha, double beta, const Tensor& sums) {
  run_on<cpu::combine, cuda::combine>(x.device(), kOp, x, alpha, beta, sums);
}

}  // namespace

void newton_schulz(Out x, int steps) {
  check_on_one_device(kOp, {{"x", x}});
  check_rank(kOp, {"x", x}, 2);
  check(x.dtype() == DType::f32 || x.dtype() == DType::bf16,
        "{}: x is {}; its dtype must be f32 or bf16", kOp, describe(x));
  if (x.numel() == 0) return;
  run_on<cpu::normalize, cuda::normalize>(x.device(), kOp, x, kEpsilon);
  const bool tall = x.size(0) > x.size(1);
  const std::int64_t k = std::min(x.size(0), x.size(1));
  const CategoryScope scope(Category::workspace);
  const Tensor a = Tensor::empty({k, k}, x.dtype());  // A, then B
  const Tensor squares = Tensor::empty({k, k}, DType::f32);
  const Tensor product = Tensor::empty(x.shape(), DType::f32);
  for (int step = 0; step < steps; ++step) {
    matmul(a, x, x, tall ? Transpose::yes : Transpose::no, tall ? Transpose::no : Transpose::yes);
    matmul(squares, a, a);
    combine(a, kB, kC, squares);
    tall ? matmul(product, x, a) : matmul(product, a, x);
    combine(x, kA, 1.0, product);
  }
}

double newton_schulz_flops(std::int64_t rows, std::int64_t columns, int steps) {
  const auto k = static_cast<double>(std::min(rows, columns));
  const auto n = static_cast<double>(std::max(rows, columns));
  return steps * (4.0 * k * k * n + 2.0 * k * k * k);
}

}  // namespace tessera
