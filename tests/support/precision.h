// The precision of dtypes, for tolerances.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "runtime/check.h"
#include "runtime/tensor.h"
#include "tests/support/device.h"

namespace tessera::test {

/// The dtypes of this build's kernels: f64 is for the CPU only.
inline const std::vector<DType> kFloating =
    kOnGpu ? std::vector{DType::f32, DType::bf16, DType::f16}
           : std::vector{DType::f32, DType::bf16, DType::f16, DType::f64};

/// The relative error of rounding to nearest: half a unit in the last place.
inline double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return 0x1p-8;
    case DType::f16:
      return 0x1p-11;
    case DType::f32:
      return 0x1p-24;
    default:
      return 0x1p-53;
  }
}

/// A bound on the relative error, in the Euclidean norm, of a result that is computed in f32 (or f64)
/// over a row and rounded once to `dtype`.
struct Precision {
  DType dtype;
  double bound;
};
inline const std::vector<Precision> kPrecisions = [] {
  std::vector<Precision> precisions = {
      {DType::f32, 2e-6}, {DType::bf16, 0x1p-8}, {DType::f16, 0x1p-11}, {DType::f64, 1e-13}};
  precisions.resize(kFloating.size());
  return precisions;
}();

/// The same for sums in f32 over rows of `columns` elements, added one after the other in the worst
/// case. Roundings are independent, so the error grows with the root of their number.
inline double f32_sum_bound(std::int64_t columns) {
  return 2e-6 * std::sqrt(std::max(1.0, static_cast<double>(columns) / 1024.0));
}

/// A tensor full of NaN. It shows if an output is read before it is written.
inline Tensor poisoned(const Shape& shape, DType dtype) {
  Tensor tensor;
  const bool floating = visit_floating(dtype, [&](auto type) {
    using T = decltype(type);
    const T nan(std::numeric_limits<float>::quiet_NaN());
    tensor = Tensor::from(std::vector<T>(static_cast<std::size_t>(shape.numel()), nan), shape);
  });
  check(floating, "poisoned makes floating tensors only");
  return tensor;
}

/// The largest |a - b| / (|b| + floor); infinite if either is NaN.
inline double worst_error(const std::vector<double>& a, const std::vector<double>& b,
                          double floor) {
  check(a.size() == b.size(), "worst_error compares {} with {} values", a.size(), b.size());
  double worst = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double error = std::fabs(a[i] - b[i]) / (std::fabs(b[i]) + floor);
    if (!(error <= worst)) worst = std::isnan(error) ? HUGE_VAL : error;
  }
  return worst;
}

}  // namespace tessera::test
