#include "examples/kernel_ladder/norm/operands.h"

#include <cmath>

#include "examples/kernel_ladder/error.h"
#include "tools/measure/noise.h"

namespace tessera::kernel_ladder::norm {

Operands::Operands(std::int64_t N, std::int64_t C)
    : x(noise({N, C}, DType::f32)),
      weight(noise({C}, DType::f32)),
      y(Tensor::zeros({N, C}, DType::f32)),
      rstd(Tensor::zeros({N}, DType::f32)) {}

Norm Operands::problem() const {
  return {x.size(0),       x.size(1),         x.data<float>(), weight.data<float>(),
          y.data<float>(), rstd.data<float>()};
}

double largest_error(const Norm& p) {
  double largest = 0.0;
  const auto compare = [&](float value, double exact) {
    const double error = std::abs(value - exact);
    largest = larger_error(largest, error == 0.0 ? 0.0 : error / (0x1p-24 * std::abs(exact)));
  };
  for (std::int64_t n = 0; n < p.N; ++n) {
    const float* const x = p.x + n * p.C;
    double squares = 0.0;
    for (std::int64_t c = 0; c < p.C; ++c) squares += static_cast<double>(x[c]) * x[c];
    const double rstd = 1.0 / std::sqrt(squares / static_cast<double>(p.C) + p.epsilon);
    compare(p.rstd[n], rstd);
    for (std::int64_t c = 0; c < p.C; ++c) compare(p.y[n * p.C + c], x[c] * rstd * p.weight[c]);
  }
  return largest;
}

double most_error(const Norm& p) {
  return static_cast<double>(p.C) / 2.0 + 10.0;
}

}  // namespace tessera::kernel_ladder::norm
