// Values of a tensor, as messages name them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/tensor.h"

namespace tessera {

/// The values of a floating tensor. Without finite ones `least` is above `most`.
struct ValueRange {
  std::int64_t count = 0;
  std::int64_t nan = 0;
  std::int64_t infinite = 0;
  double least = 0.0, most = 0.0;

  bool is_finite() const { return nan + infinite == 0; }
};

/// `tensor` is floating and lies in host memory.
ValueRange range_of(const Tensor& tensor);

/// "2 nan and 1 inf among 48 values from -0.5 to 0.25", or "48 values from -0.5 to 0.25".
std::string to_string(const ValueRange& range);

/// The elements of a floating or i32 tensor as numbers of f64; empty for other dtypes. Waits for the
/// device.
std::vector<double> values_of(const Tensor& tensor);

}  // namespace tessera
