// Multiple-choice questions as tokens, and how likely a model finds each choice.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "models/language_model.h"

namespace tessera {

struct Question {
  std::vector<std::int32_t> context;
  std::vector<std::vector<std::int32_t>> endings;
  /// The ending that is right.
  std::size_t label = 0;
};

/// A question as rows of equal length: the context with one ending each, filled up with token 0 behind it.
struct QuestionRows {
  std::int64_t rows = 0;
  std::int64_t length = 0;
  std::vector<std::int32_t> inputs, targets;
  /// The positions [first, last) of each row that predict the ending's tokens.
  std::vector<std::pair<std::int64_t, std::int64_t>> scored;
};

/// If context and ending are too long for the model, the row keeps the context's last tokens, as in lm-eval.
/// Raises Error if an ending alone is too long.
QuestionRows rows_of(const Question& question, std::int64_t model_context);

/// The logarithm of each ending's probability: the sum over its row's scored targets. `log_probabilities` is
/// [rows, length]. Raises Error if one is not finite.
std::vector<double> log_likelihoods(const QuestionRows& rows,
                                    const std::vector<float>& log_probabilities);
/// The same by a model. A collective of all ranks that share its weights.
std::vector<double> log_likelihoods(LanguageModel& model, const Question& question);

/// The ending with the largest log-likelihood per length, the first of equals.
std::size_t likeliest(const std::vector<double>& log_likelihoods,
                      const std::vector<double>& lengths);

/// The number of right answers. The answer is the ending with the largest mean log-probability of its tokens,
/// as llm.c's hellaswag.py chooses it. Of several ranks each answers its share, every `ranks`-th question
/// from number `rank` on, and makes as many passes as the others; the sum of all is the model's.
std::int64_t right_answers(LanguageModel& model, const std::vector<Question>& questions,
                           int rank = 0, int ranks = 1);

}  // namespace tessera
