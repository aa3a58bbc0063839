// Multiple-choice questions such as HellaSwag, in llm.c's file format.
//
// llm.c's dev/data/hellaswag.py writes such a file for GPT-2's tokenizer, and mmlu.py another one. 256
// int32, little-endian: [0] = 20240522, [1] = version 1, [2] = number of questions, [3] = most bytes of one.
// Then each question, in uint16: 65535, its bytes, its index, the label, the number of endings (4); the length
// of the context and its tokens; for every ending its length and its tokens (dev/data/data_common.py,
// write_evalfile).
#pragma once

#include <cstdint>
#include <filesystem>
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

/// Raises Error with the path, and with the number of the question, unless the file is exactly as the format
/// says and all tokens are below `vocab_size`.
std::vector<Question> read_questions(const std::filesystem::path& path, std::int64_t vocab_size);

/// A question as rows of equal length: the context with one ending each, filled up with token 0 behind it.
struct QuestionRows {
  std::int64_t rows = 0;
  std::int64_t length = 0;
  std::vector<std::int32_t> inputs, targets;
  /// The positions [first, last) of each row that predict the ending's tokens.
  std::vector<std::pair<std::int64_t, std::int64_t>> scored;
};

/// A context that is too long for the model keeps its last tokens. Raises Error if an ending alone is
/// too long.
QuestionRows rows_of(const Question& question, std::int64_t model_context);

/// The row with the largest mean log-probability of its scored targets, the first of equals: the answer, as
/// llm.c and its hellaswag.py (acc_norm) choose it. `log_probabilities` is [rows, length].
std::size_t answer(const QuestionRows& rows, const std::vector<float>& log_probabilities);

/// The number of right answers. Of several ranks each answers its share, every `ranks`-th question from
/// number `rank` on, and makes as many passes as the others; the sum of all is the model's.
std::int64_t right_answers(LanguageModel& model, const std::vector<Question>& questions,
                           int rank = 0, int ranks = 1);

}  // namespace tessera
