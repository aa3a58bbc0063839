#include <cmath>
#include <numbers>

#include "kernels/rope/op.h"
#include "runtime/check.h"

namespace tessera {
namespace {

double scaled(double frequency, const Llama3Scaling& scaling) {
  // Periods of the wave in the original context.
  const double turns = scaling.original_context * frequency / (2.0 * std::numbers::pi);
  const double low = scaling.low_frequency_factor, high = scaling.high_frequency_factor;
  if (turns >= high) return frequency;
  if (turns < low) return frequency / scaling.factor;
  const double blend = (turns - low) / (high - low);
  return (1.0 - blend) * frequency / scaling.factor + blend * frequency;
}

}  // namespace

std::vector<double> rope_frequencies(std::int64_t head_size, double theta,
                                     const std::optional<Llama3Scaling>& scaling) {
  check(head_size >= 2 && head_size % 2 == 0,
        "rope_frequencies: head_size is {}; it must be even and at least 2", head_size);
  check(theta > 0.0, "rope_frequencies: theta is {}; it must be positive", theta);
  if (scaling) {
    check(scaling->factor > 0.0 && scaling->original_context > 0.0 &&
              scaling->high_frequency_factor >= scaling->low_frequency_factor,
          "rope_frequencies: factor is {}, original_context {}, low_frequency_factor {} and "
          "high_frequency_factor {}; the first two must be positive, and the high factor at least "
          "the low one",
          scaling->factor, scaling->original_context, scaling->low_frequency_factor,
          scaling->high_frequency_factor);
  }
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < head_size / 2; ++i) {
    const double f =
        std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_size));
    frequencies.push_back(scaling ? scaled(f, *scaling) : f);
  }
  return frequencies;
}

RopeTable rope_table(std::int64_t positions, const std::vector<double>& frequencies,
                     RopePairs pairs, DType dtype) {
  check(positions >= 0 && !frequencies.empty(),
        "rope_table: there are {} positions and {} frequencies; positions must be at least 0 and "
        "frequencies at least 1",
        positions, frequencies.size());
  check(dtype == DType::f32 || dtype == DType::f64,
        "rope_table: the dtype is {}; it must be f32, or f64 for f64 heads", name_of(dtype));
  const Shape shape{positions, static_cast<std::int64_t>(frequencies.size())};
  RopeTable table{.pairs = pairs};
  visit_floating(dtype, [&](auto type) {
    using T = decltype(type);
    std::vector<T> cosine, sine;
    for (std::int64_t position = 0; position < positions; ++position) {
      for (const double frequency : frequencies) {
        const double angle = static_cast<double>(position) * frequency;
        cosine.push_back(static_cast<T>(std::cos(angle)));
        sine.push_back(static_cast<T>(std::sin(angle)));
      }
    }
    table.cosine = Tensor::from(cosine, shape);
    table.sine = Tensor::from(sine, shape);
  });
  return table;
}

}  // namespace tessera
