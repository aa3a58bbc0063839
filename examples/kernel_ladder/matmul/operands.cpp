#include "examples/kernel_ladder/matmul/operands.h"

#include <cmath>

#include "examples/kernel_ladder/error.h"
#include "examples/kernel_ladder/matmul/rungs.h"
#include "tools/measure/noise.h"

namespace tessera::kernel_ladder {
namespace {

template <typename T>
double error_of(const Product<T>& p) {
  double largest = 0.0;
  for (std::int64_t i = 0; i < p.M; ++i) {
    for (std::int64_t j = 0; j < p.N; ++j) {
      double sum = 0.0, absolute = 0.0;
      for (std::int64_t k = 0; k < p.K; ++k) {
        const double term = static_cast<double>(static_cast<float>(p.a[i * p.K + k])) *
                            static_cast<double>(static_cast<float>(p.b[k * p.N + j]));
        sum += term, absolute += std::abs(term);
      }
      largest = larger_error(largest, std::abs(p.c[i * p.N + j] - sum) / (0x1p-24 * absolute));
    }
  }
  return largest;
}

}  // namespace

Operands::Operands(std::int64_t M, std::int64_t N, std::int64_t K, DType dtype)
    : a(noise({M, K}, dtype)),
      b(noise({K, N}, dtype)),
      c(Tensor::zeros({M, N}, DType::f32)),
      scratch(Tensor::empty({kScratchBytes / static_cast<std::int64_t>(size_of(dtype))}, dtype)) {}

double largest_error(const Product<float>& p) {
  return error_of(p);
}
double largest_error(const Product<bfloat16>& p) {
  return error_of(p);
}
double largest_error(const Operands& operands) {
  return operands.a.dtype() == DType::bf16 ? largest_error(operands.product<bfloat16>())
                                           : largest_error(operands.product<float>());
}

#if !defined(__x86_64__)
void amx(const Product<bfloat16>&) {}
#endif

}  // namespace tessera::kernel_ladder
