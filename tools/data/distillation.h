// The numbers of a loss that follows a teacher (soft_targets.h).
#pragma once

#include <cstdint>

namespace tessera {

struct Distillation {
  /// K: the teacher's likeliest tokens for each token.
  std::int64_t top_k = 32;
  /// w: their share in the loss, 0 to 1. The next token has the rest.
  double weight = 0.5;
};

}  // namespace tessera
