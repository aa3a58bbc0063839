#include "examples/kernel_ladder/softmax/operands.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "examples/kernel_ladder/error.h"
#include "kernels/scale/op.h"
#include "tools/measure/noise.h"

namespace tessera::kernel_ladder::softmax {

Operands::Operands(std::int64_t N, std::int64_t C)
    : x(noise({N, C}, DType::f32)),
      y(Tensor::zeros({N, C}, DType::f32)),
      loss(Tensor::zeros({N}, DType::f32)) {
  scale(x, x, 20.0);
  std::vector<std::int32_t> columns;
  for (std::int64_t n = 0; n < N; ++n) columns.push_back(static_cast<std::int32_t>(7919 * n % C));
  target = Tensor::from(columns, {N});
}

Softmax Operands::problem() const {
  return {x.size(0),       x.size(1),         x.data<float>(), target.data<std::int32_t>(),
          y.data<float>(), loss.data<float>()};
}

double largest_error(const Softmax& p, bool has_y) {
  double largest = 0.0;
  const auto compare = [&](double value, double exact) {
    largest = larger_error(largest, std::abs(value - exact) / (0x1p-24 * exact));
  };
  for (std::int64_t n = 0; n < p.N; ++n) {
    const float* const x = p.x + n * p.C;
    const double maximum = *std::max_element(x, x + p.C);
    double sum = 0.0;
    for (std::int64_t c = 0; c < p.C; ++c) sum += std::exp(x[c] - maximum);
    const auto exact = [&](std::int64_t c) { return std::exp(x[c] - maximum) / sum; };
    compare(std::exp(-static_cast<double>(p.loss[n])), exact(p.target[n]));
    for (std::int64_t c = 0; has_y && c < p.C; ++c) compare(p.y[n * p.C + c], exact(c));
  }
  return largest;
}

double most_error(const Softmax& p) {
  return 4.0 * static_cast<double>(p.C) + 90.0;
}

}  // namespace tessera::kernel_ladder::softmax
