// The probabilities that a model gives to given tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tools/generate/inference.h"

namespace tessera {

struct Scores {
  /// The mean of -log p over all scored tokens.
  double loss = 0.0;
  /// For each row the natural logarithm of the probability of every token after the first.
  std::vector<std::vector<float>> log_probabilities;
};

/// The rows of a JSON file, a list of equally long lists of at least two token ids. Raises Error
/// with the path.
std::vector<std::vector<std::int32_t>> read_token_rows(const std::filesystem::path& path);

/// Raises Error if a row is longer than the model's context and one token, or has a token outside
/// its vocabulary.
Scores score(const InferenceOptions& options, const std::vector<std::vector<std::int32_t>>& rows);

/// One line of JSON. Each number reads back to the same float.
std::string to_json(const Scores& scores);

}  // namespace tessera
