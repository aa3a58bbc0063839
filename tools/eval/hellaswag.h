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
#include <vector>

#include "tools/eval/question.h"

namespace tessera {

/// Raises Error with the path, and with the number of the question, unless the file is exactly as the format
/// says and all tokens are below `vocab_size`.
std::vector<Question> read_questions(const std::filesystem::path& path, std::int64_t vocab_size);

}  // namespace tessera
