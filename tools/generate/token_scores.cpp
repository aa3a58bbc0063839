#include "tools/generate/token_scores.h"

#include <algorithm>
#include <numeric>

#include "models/language_model.h"

namespace tessera {
namespace {

std::vector<float> log_probabilities_of_ids(const Tensor& logits,
                                            std::span<const std::int32_t> ids) {
  return log_probabilities_of(logits, Tensor::from(ids, {logits.size(0)})).to_vector<float>();
}

}  // namespace

std::vector<std::int32_t> likeliest_ids(std::span<const float> logits, std::int64_t count) {
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto end = ids.begin() + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(ids.begin(), end, ids.end(), [&](std::int32_t a, std::int32_t b) {
    const float of_a = logits[static_cast<std::size_t>(a)];
    const float of_b = logits[static_cast<std::size_t>(b)];
    return of_a > of_b || (of_a == of_b && a < b);
  });
  ids.resize(static_cast<std::size_t>(count));
  return ids;
}

std::vector<TokenScore> score_tokens(const Tensor& logits, std::span<const std::int32_t> tokens,
                                     std::int64_t likeliest) {
  const std::vector<float> own = log_probabilities_of_ids(logits, tokens);
  std::vector<TokenScore> scores;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    scores.push_back({.token = tokens[i], .log_probability = own[i]});
  }
  const std::int64_t count = std::min(likeliest, logits.size(1));
  if (count == 0) return scores;
  const std::vector<float> values = logits.to_vector<float>();
  const auto width = static_cast<std::size_t>(logits.size(1));
  std::vector<std::vector<std::int32_t>> ids;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    ids.push_back(likeliest_ids(std::span(values).subspan(i * width, width), count));
  }
  for (std::size_t place = 0; place < static_cast<std::size_t>(count); ++place) {
    std::vector<std::int32_t> at_place;
    for (const auto& row : ids) at_place.push_back(row[place]);
    const std::vector<float> found = log_probabilities_of_ids(logits, at_place);
    for (std::size_t i = 0; i < scores.size(); ++i) {
      scores[i].likeliest.emplace_back(at_place[i], found[i]);
    }
  }
  return scores;
}

}  // namespace tessera
