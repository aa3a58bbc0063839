// Clipping by the global gradient norm (Pascanu, Mikolov, Bengio 2013).
#pragma once

#include <cmath>
#include <limits>

namespace tessera {

/// The factor that brings a gradient of this norm down to max_norm: max_norm / norm if norm >
/// max_norm, else 1. max_norm <= 0 means no clipping: always 1. A norm that is not finite gives
/// NaN, which poisons the update instead of hiding the overflow (max_norm / infinity would be 0).
/// A caller that can skip the update checks the norm first.
inline double clip_scale(double norm, double max_norm) {
  if (max_norm <= 0.0) return 1.0;
  if (!std::isfinite(norm)) return std::numeric_limits<double>::quiet_NaN();
  return norm > max_norm ? max_norm / norm : 1.0;
}

}  // namespace tessera
