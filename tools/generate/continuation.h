// Continuing sequences of tokens with a model that is already there.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/language_model.h"
#include "tools/generate/sampler.h"
#include "tools/generate/stop_tokens.h"

namespace tessera {

struct ContinueOptions {
  SamplingOptions sampling;
  /// The most tokens to add to a prompt. A stop token ends it earlier.
  std::int64_t tokens = 200;
  std::uint64_t seed = 0;
  /// The most prompts that are continued at the same time.
  std::int64_t batch = 16;
  StopTokens stop = {};
  /// Tokens below this may be chosen: a tokenizer's, which may be fewer than the model's. 0: all.
  std::int64_t choices = 0;
};

struct Generated {
  /// The prompt's tokens and the new ones. A stop token is the last one.
  std::vector<std::int32_t> ids;
  /// The new tokens' natural logarithms by the model's logits, before temperature, top-k and top-p.
  /// They have the bits of LanguageModel::log_probabilities as long as the context is not
  /// full.
  std::vector<float> log_probabilities;
  /// `generate` adds it, if it has needed the tokenizer: the text that it writes for this prompt.
  std::optional<std::string> text = {};
};

/// Calls of continue_prompts, each with the number of the prompt. They may be empty.
struct ContinueCalls {
  /// A new token that is no stop token; returns whether the text ends with it.
  std::function<bool(std::size_t, std::int32_t)> token = {};
  std::function<void(std::size_t)> finished = {};
};

/// Continues every prompt of token ids, each as if it were alone. The same options give the same
/// result. When the model's context is full, it continues from its last half. Every rank makes the
/// same call and gets the same result. Raises Error if a prompt is empty or has a token outside the
/// vocabulary.
std::vector<Generated> continue_prompts(LanguageModel& model,
                                        const std::vector<std::vector<std::int32_t>>& prompts,
                                        const ContinueOptions& options,
                                        const ContinueCalls& calls = {});

}  // namespace tessera
