#include "examples/kernel_ladder/attention/operands.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "examples/kernel_ladder/error.h"
#include "kernels/cast/op.h"
#include "tools/measure/noise.h"

namespace tessera::kernel_ladder::attention {
namespace {

/// The scores of query i of a head in f64. Returns the largest sum of a score's absolute terms.
double scores_of(const Attention& p, std::int64_t head, std::int64_t i,
                 std::vector<double>& scores) {
  double largest = 0.0;
  scores.assign(static_cast<std::size_t>(i) + 1, 0.0);
  for (std::int64_t j = 0; j <= i; ++j) {
    double absolute = 0.0;
    for (std::int64_t d = 0; d < p.D; ++d) {
      const double term =
          static_cast<double>(p.q[head + i * p.D + d]) * p.k[head + j * p.D + d] * p.scale;
      scores[static_cast<std::size_t>(j)] += term;
      absolute += std::abs(term);
    }
    largest = std::max(largest, absolute);
  }
  return largest;
}

/// Calls f(head, i) for each query of each head.
template <typename F>
void for_each_query(const Attention& p, const F& f) {
  for (std::int64_t h = 0; h < p.H; ++h) {
    for (std::int64_t i = 0; i < p.T; ++i) f(h * p.T * p.D, i);
  }
}

}  // namespace

Operands::Operands(std::int64_t H, std::int64_t T, std::int64_t D, float sharpness, DType precision)
    : o(Tensor::zeros({H, T, D}, DType::f32)),
      scores(Tensor::zeros({T, T}, DType::f32)),
      scale(sharpness / std::sqrt(static_cast<float>(D))) {
  // Parts of one array, because noise of equal shapes is equal.
  const Tensor all = Tensor::empty({3 * H, T, D}, DType::f32);
  cast(all, noise(all.shape(), precision));
  q = all.slice(0, H), k = all.slice(H, 2 * H), v = all.slice(2 * H, 3 * H);
}

Attention Operands::problem() const {
  return {q.size(0),       q.size(1),       q.size(2), q.data<float>(),     k.data<float>(),
          v.data<float>(), o.data<float>(), scale,     scores.data<float>()};
}

double largest_error(const Attention& p) {
  double largest = 0.0;
  std::vector<double> weights;
  for_each_query(p, [&](std::int64_t head, std::int64_t i) {
    scores_of(p, head, i, weights);
    const double maximum = *std::max_element(weights.begin(), weights.end());
    double sum = 0.0;
    for (double& weight : weights) sum += weight = std::exp(weight - maximum);
    for (std::int64_t d = 0; d < p.D; ++d) {
      double exact = 0.0, absolute = 0.0;
      for (std::int64_t j = 0; j <= i; ++j) {
        const double term = weights[static_cast<std::size_t>(j)] / sum * p.v[head + j * p.D + d];
        exact += term, absolute += std::abs(term);
      }
      const double error = std::abs(p.o[head + i * p.D + d] - exact);
      largest = larger_error(largest, error / (0x1p-24 * absolute));
    }
  });
  return largest;
}

double most_error(const Attention& p, bool weights_in_bf16) {
  double S = 0.0;
  std::vector<double> scores;
  for_each_query(p, [&](std::int64_t head, std::int64_t i) {
    S = std::max(S, scores_of(p, head, i, scores));
  });
  const auto D = static_cast<double>(p.D), T = static_cast<double>(p.T);
  const double of_weights = weights_in_bf16 ? 0x1p-8 / 0x1p-24 : 0.0;
  return 2.0 * ((D + 3.0) * S + 2.0 + T + 3.0 * T + 2.0 * S) + 4.0 + of_weights;
}

}  // namespace tessera::kernel_ladder::attention
