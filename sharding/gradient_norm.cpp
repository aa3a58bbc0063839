#include "sharding/gradient_norm.h"

#include <algorithm>
#include <cmath>

#include "kernels/reduce/op.h"
#include "runtime/category.h"
#include "runtime/context.h"
#include "sharding/comm/stream.h"

namespace tessera {
namespace {

/// The reduction of `value` over the group, in place.
void reduce_over(Communicator* group, const Tensor& value, Reduction reduction) {
  if (group == nullptr) return;
  const Stream& stream = communication_stream();
  stream.wait(context().compute_stream().record());
  wait_for_communication(group->all_reduce({value}, stream, "gradient norm", reduction));
}

float largest_magnitude(const std::vector<Tensor>& gradients, Communicator* group) {
  const auto count = static_cast<std::int64_t>(gradients.size());
  const Tensor each = Tensor::empty({count}, DType::f32);  // read back at once
  for (std::int64_t i = 0; i < count; ++i) {
    max_abs(each.slice(i, i + 1), gradients[static_cast<std::size_t>(i)]);
  }
  float largest = 0.0f;
  for (const float here : each.to_vector<float>()) {
    if (std::isnan(largest)) break;
    if (!(here <= largest)) largest = here;  // NaN is the largest
  }
  const Tensor result = Tensor::from(std::vector{largest}, {1});
  reduce_over(group, result, Reduction::maximum);
  return result.item<float>();
}

}  // namespace

double gradient_norm(const std::vector<Tensor>& gradients, Communicator* group) {
  const CategoryScope category(Category::workspace);
  const float largest = largest_magnitude(gradients, group);
  if (largest == 0.0f || !std::isfinite(largest)) return largest;
  int exponent = 0;
  std::frexp(largest, &exponent);  // largest < 2^exponent

  const Tensor words = Tensor::zeros({2}, DType::i64);
  for (const Tensor& gradient : gradients) {
    sum_of_squares(words, gradient, exponent, Accumulate::yes);
  }
  reduce_over(group, words, Reduction::sum);
  const auto sums = words.to_vector<std::int64_t>();
  const double scaled =
      std::ldexp(static_cast<double>(sums[0]), -30) + std::ldexp(static_cast<double>(sums[1]), -60);
  return std::ldexp(std::sqrt(scaled), exponent);
}

}  // namespace tessera
