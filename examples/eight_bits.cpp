// Prints numbers rounded to 8 bits, without a scale and with the scale of the largest.
#include <fmt/format.h>

#include "kernels/fp8/op.h"
#include "runtime/context.h"

using namespace tessera;

namespace {

Tensor number(double value) {
  return Tensor::full({1}, DType::f32, value);
}

/// The numbers that 8 bits hold of x.
std::vector<bfloat16> rounded(const Tensor& x, DType format, const Tensor& scale,
                              const Tensor& inverse) {
  const Tensor y = Tensor::empty(x.shape(), format), expanded = Tensor::empty(x.shape(), x.dtype());
  fp8_quantize(y, {}, x, scale, number(0.0));
  fp8_expand(expanded, y, inverse);
  return expanded.to_vector<bfloat16>();
}

}  // namespace

int main() {
  RankContext rank({.threads = 1});
  const ContextGuard guard(rank);
  std::vector<bfloat16> values;
  for (const float value : {1000.0f, 3.3f, 0.3f, 1e-3f, 1e-5f, 1e-6f}) values.emplace_back(value);
  const auto count = static_cast<std::int64_t>(values.size());
  const Tensor x = Tensor::from(values, {count});

  fmt::print("{:>28}{:>31}\n{:>11}{:>9}{:>11}{:>17}{:>11}\n", "scale 1", "scale of the largest",
             "bf16", "e4m3", "e5m2", "e4m3", "e5m2");
  std::vector<std::vector<bfloat16>> columns = {values};
  for (const bool scaled : {false, true}) {
    for (const DType format : {DType::e4m3, DType::e5m2}) {
      const Tensor scale = number(1.0), inverse = number(1.0);
      const Tensor history = number(1000.0).reshape({1, 1}), limit = number(largest_of(format));
      if (scaled) fp8_scales(scale, inverse, history, limit);
      columns.push_back(rounded(x, format, scale, inverse));
    }
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto text = [&](std::size_t column) {
      return fmt::format("{:.4g}", static_cast<float>(columns[column][i]));
    };
    fmt::print("{:>11}{:>9}{:>11}{:>17}{:>11}\n", text(0), text(1), text(2), text(3), text(4));
  }
}
