// The log-probabilities of tokens, next to those of the likeliest tokens at their places.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "runtime/tensor.h"

namespace tessera {

struct TokenScore {
  std::int32_t token = 0;
  /// The natural logarithm of the token's probability by the model's logits, with the bits of
  /// LanguageModel::log_probabilities.
  float log_probability = 0.0F;
  /// The likeliest tokens at its place with theirs, the likeliest first. Equal logits are ordered by
  /// token id.
  std::vector<std::pair<std::int32_t, float>> likeliest = {};
};

/// The ids of the `count` largest logits, the largest first. Equal logits are ordered by token id.
std::vector<std::int32_t> likeliest_ids(std::span<const float> logits, std::int64_t count);

/// The scores of tokens [N] by their rows of logits [N, V], each with so many of the likeliest tokens
/// (at most V).
std::vector<TokenScore> score_tokens(const Tensor& logits, std::span<const std::int32_t> tokens,
                                     std::int64_t likeliest);

}  // namespace tessera
