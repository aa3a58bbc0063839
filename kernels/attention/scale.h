// The factor of attention's scores.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

namespace tessera {

/// 1 / sqrt(head_size), unless another is given.
inline float attention_scale(std::int64_t head_size, std::optional<double> given = {}) {
  return static_cast<float>(given.value_or(1.0 / std::sqrt(static_cast<double>(head_size))));
}

}  // namespace tessera
