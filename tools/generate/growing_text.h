// A sequence of tokens that a model continues, token by token.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "models/language_model.h"
#include "tools/generate/sampler.h"
#include "tools/generate/stop_tokens.h"
#include "tools/generate/token_scores.h"

namespace tessera {

struct GrowthOptions {
  SamplingOptions sampling;
  /// The most tokens to add to the prompt. A stop token ends the text earlier.
  std::int64_t tokens = 200;
  std::uint64_t seed = 0;
  StopTokens stop = {};
  /// Tokens below this may be chosen: a tokenizer's, which may be fewer than the model's. 0: all.
  std::int64_t choices = 0;
  /// Each score has so many of the likeliest tokens.
  std::int64_t likeliest = 0;
  /// The prompt's tokens after the first have scores, too. The whole text must then fit into the
  /// model's context.
  bool score_prompt = false;
};

/// Its tokens, and the cache over those that the model has read. Any number of texts may share a
/// pass of the model: a text has the bits that it has alone, however many tokens are read at once.
class GrowingText {
 public:
  GrowingText(const GrowthOptions& options, const TransformerShape& shape,
              std::vector<std::int32_t> prompt);

  bool finished() const;
  /// Ends the text with its newest token.
  void end() { stopped_ = true; }
  /// Whether a stop token or end() ended it.
  bool stopped() const { return stopped_; }
  /// The prompt's tokens and the new ones. A stop token is the last one.
  const std::vector<std::int32_t>& ids() const { return ids_; }
  std::int64_t new_tokens() const { return size() - prompt_; }
  /// Scores of the prompt's tokens, if they have scores, and of the new ones.
  const std::vector<TokenScore>& scores() const { return scores_; }

  /// The number of tokens that the model must read before the next one is chosen.
  std::int64_t unread() const;
  /// The next of these, at most `most`, as a model's input. When the model's context is full, they are
  /// the last half of the text again.
  NewTokens read(std::int64_t most = std::numeric_limits<std::int64_t>::max());
  /// Takes the logits of the tokens that were read. Once all are read, chooses the next token and
  /// returns it unless it is a stop token.
  std::optional<std::int32_t> add(const Tensor& logits);

 private:
  std::int64_t size() const { return static_cast<std::int64_t>(ids_.size()); }
  bool reads_prompt() const { return read_ < prompt_; }
  void add_scores(const Tensor& logits, std::int64_t first_token, std::int64_t count);

  GrowthOptions options_;
  std::int64_t context_;
  std::int64_t prompt_;  // tokens
  std::vector<std::int32_t> ids_;
  std::vector<TokenScore> scores_;
  KeyValueCache cache_;
  std::int64_t read_ = 0;  // of ids_
  bool stopped_ = false;
};

}  // namespace tessera
