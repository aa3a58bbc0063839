// Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/random.h"

namespace tessera {

struct SamplingOptions {
  /// Divides the logits; 0 always takes the likeliest token.
  double temperature = 1.0;
  /// Only the k likeliest tokens; 0: all.
  std::int64_t top_k = 0;
  /// Only the fewest likeliest tokens with probabilities that sum to at least this (nucleus sampling,
  /// Holtzman et al. 2020); 1: all. Applied after top_k.
  double top_p = 1.0;
};

/// Raises Error if an option is out of range.
void check_sampling(const SamplingOptions& options);

/// A token drawn by `random`'s element `position`. Equal logits are ordered by token id.
std::int64_t sample(std::span<const float> logits, const SamplingOptions& options,
                    const RandomStream& random, std::uint64_t position);

}  // namespace tessera
