// The largest of several errors.
#pragma once

#include <cmath>

namespace tessera::kernel_ladder {

/// The larger of both, or NaN if one is NaN: no bound then holds.
inline double larger_error(double a, double b) {
  return std::isnan(a) || a > b ? a : b;
}

}  // namespace tessera::kernel_ladder
