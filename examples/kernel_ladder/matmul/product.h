// The problem of the ladder of matrix products, c = a b.
#pragma once

#include <cstdint>

#include "runtime/half.h"

namespace tessera::kernel_ladder {

/// c = a b for a [M, K], b [K, N] and c [M, N]. Their rows lie one after another.
template <typename T>
struct Product {
  std::int64_t M, N, K;
  const T* a;
  const T* b;
  float* c;
  /// kScratchBytes for packed panels of b, aligned to 64.
  T* scratch;
};

inline constexpr std::int64_t kScratchBytes = 1 << 20;

}  // namespace tessera::kernel_ladder
