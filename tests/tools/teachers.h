// Teacher files with given answers.
#pragma once

#include <filesystem>
#include <functional>
#include <utility>
#include <vector>

#include "tools/data/teacher_file.h"

namespace tessera::test {

/// A teacher's answers to a token.
using Answers = std::vector<std::pair<TokenId, float>>;

/// Writes the teacher file of a token file, with the answers to token `i`.
inline void write_teacher(const std::filesystem::path& token_file, std::int64_t top_k,
                          std::int64_t vocab_size,
                          const std::function<Answers(std::int64_t i)>& answers) {
  const TokenFile tokens(token_file);
  write_teacher_file(teacher_file_of(token_file),
                     {top_k, vocab_size, tokens.size(), hash_of_tokens(tokens)},
                     [&](const TakeRecords& take) {
                       for (std::int64_t i = 0; i < tokens.size(); ++i) {
                         std::vector<TokenId> ids(static_cast<std::size_t>(top_k), 0);
                         std::vector<float16> values(ids.size(), kNoProbability);
                         const Answers given = answers(i);
                         for (std::size_t k = 0; k < given.size(); ++k) {
                           ids[k] = given[k].first;
                           values[k] = float16(given[k].second);
                         }
                         take({ids, values});
                       }
                     });
}

/// Two answers to each token, the likelier one three times as likely.
inline Answers answers_of_token(std::int64_t i) {
  const auto id = static_cast<TokenId>(i % 5);
  return {{id, -0.2876821f}, {id + 1, -1.3862944f}};
}

}  // namespace tessera::test
