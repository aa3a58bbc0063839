#include <algorithm>
#include <vector>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/lanes.h"
#include "kernels/newton_schulz/parts.h"
#include "runtime/integer.h"

namespace tessera::cpu {
namespace {

/// The sum of squares: of each chunk, then of the chunks in order.
template <typename T>
double sum_of_squares(const T* x, std::int64_t count) {
  std::vector<double> sums(static_cast<std::size_t>(ceil_div(count, kElementwiseChunk)));
  parallel_for(count, kElementwiseChunk, [&](std::int64_t begin, std::int64_t end) {
    sums[static_cast<std::size_t>(begin / kElementwiseChunk)] =
        sum_of<double>(end - begin, [&](std::int64_t i) {
          const double value = load(x[begin + i]);
          return value * value;
        });
  });
  double total = 0.0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace

void normalize(Out x, double epsilon) {
  visit_floating(x.dtype(), [&](auto type) {
    using T = decltype(type);
    T* const values = x.data<T>();
    const double norm = std::sqrt(sum_of_squares(values, x.numel()));
    const auto factor = static_cast<float>(1.0 / std::max(norm, epsilon));
    elementwise(
        x.numel(), values, [factor](auto value) { return value * factor; }, values);
  });
}

void combine(Out x, double alpha, double beta, const Tensor& sums) {
  const auto a = static_cast<float>(alpha), b = static_cast<float>(beta);
  visit_floating(x.dtype(), [&](auto type) {
    using T = decltype(type);
    T* const values = x.data<T>();
    elementwise(
        x.numel(), values, [a, b](float value, float sum) { return std::fma(a, value, b * sum); },
        values, sums.data<float>());
  });
}

}  // namespace tessera::cpu
