#include "tools/watch/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera {
namespace {

/// f(value) for every element of a floating tensor in host memory.
template <typename F>
void for_each_value(const Tensor& tensor, const F& f) {
  visit_floating(tensor.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* const values = tensor.data<T>();
    for (std::int64_t i = 0; i < tensor.numel(); ++i) {
      if constexpr (std::is_same_v<T, double>) {
        f(values[i]);
      } else {
        f(static_cast<double>(static_cast<float>(values[i])));
      }
    }
  });
}

}  // namespace

ValueRange range_of(const Tensor& tensor) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  ValueRange range = {.count = tensor.numel(), .least = kInfinity, .most = -kInfinity};
  for_each_value(tensor, [&](double value) {
    if (std::isnan(value)) {
      ++range.nan;
    } else if (std::isinf(value)) {
      ++range.infinite;
    } else {
      range.least = std::min(range.least, value);
      range.most = std::max(range.most, value);
    }
  });
  return range;
}

std::string to_string(const ValueRange& range) {
  std::string text = fmt::format("{} value{}", range.count, range.count == 1 ? "" : "s");
  if (range.least <= range.most)
    text += fmt::format(" from {:.3g} to {:.3g}", range.least, range.most);
  if (range.is_finite()) return text;
  return fmt::format("{} nan and {} inf among {}", range.nan, range.infinite, text);
}

std::vector<double> values_of(const Tensor& tensor) {
  const Tensor host = tensor.to_host();
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(host.numel()));
  for_each_value(host, [&](double value) { values.push_back(value); });
  if (host.dtype() == DType::i32)
    values.assign(host.data<std::int32_t>(), host.data<std::int32_t>() + host.numel());
  return values;
}

}  // namespace tessera
