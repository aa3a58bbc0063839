// Records of a teacher file (tools/data/teacher_file.h), from a model's logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tools/data/teacher_file.h"

namespace tessera {

/// Records of N tokens.
struct RecordsOfRows {
  std::vector<TokenId> ids;                // [N, K]
  std::vector<float16> log_probabilities;  // [N, K]
  /// The sum of the next tokens' cross-entropies, and their number.
  double loss = 0.0;
  std::int64_t next_tokens = 0;
};

/// The records of rows of logits, f32 [N, V]. K = top_k is at most V. A row whose next token is kIgnoreIndex
/// gets an empty record. Log-probabilities have the bits of LanguageModel::log_probabilities before they are
/// rounded to f16. One that rounds to minus infinity is an empty place. Raises Error if a row's largest
/// log-probability is not finite.
RecordsOfRows teacher_records(const Tensor& logits, std::span<const std::int32_t> next_tokens,
                              std::int64_t top_k);

}  // namespace tessera
