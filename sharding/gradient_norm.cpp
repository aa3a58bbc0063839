#include "sharding/gradient_norm.h"

#include <algorithm>
#include <cmath>

#include "kernels/reduce/op.h"
#include "runtime/category.h"

namespace tessera {
namespace {

float largest_magnitude(const std::vector<Tensor>& gradients) {
  const Tensor result = Tensor::empty({1}, DType::f32);
  float largest = 0.0f;
  for (const Tensor& gradient : gradients) {
    max_abs(result, gradient);
    const float here = result.item<float>();
    if (std::isnan(here)) return here;
    largest = std::max(largest, here);
  }
  return largest;
}

}  // namespace

double gradient_norm(const std::vector<Tensor>& gradients) {
  const CategoryScope category(Category::workspace);
  const float largest = largest_magnitude(gradients);
  if (largest == 0.0f || !std::isfinite(largest)) return largest;
  int exponent = 0;
  std::frexp(largest, &exponent);  // largest < 2^exponent

  const Tensor words = Tensor::zeros({2}, DType::i64);
  for (const Tensor& gradient : gradients) {
    sum_of_squares(words, gradient, exponent, Accumulate::yes);
  }
  const auto sums = words.to_vector<std::int64_t>();
  const double scaled =
      std::ldexp(static_cast<double>(sums[0]), -30) + std::ldexp(static_cast<double>(sums[1]), -60);
  return std::ldexp(std::sqrt(scaled), exponent);
}

}  // namespace tessera
