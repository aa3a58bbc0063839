#include "tools/generate/score.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/json.h"
#include "tools/generate/prompts.h"

namespace tessera {
namespace {

using Rows = std::vector<std::vector<std::int32_t>>;

void check_rows(const Rows& rows, const TransformerShape& shape) {
  const auto tokens = static_cast<std::int64_t>(rows.front().size()) - 1;
  check(tokens <= shape.context, "rows of {} tokens are longer than the model's context of {}",
        tokens + 1, shape.context);
  for (const auto& row : rows) {
    const std::int32_t most = *std::max_element(row.begin(), row.end());
    check(most < shape.vocab_size, "token {} is outside the model's vocabulary of {}", most,
          shape.vocab_size);
  }
}

/// i32 [rows, tokens] of the rows [first, last), each from its token `begin` on.
Tensor tokens_of(const Rows& rows, std::size_t first, std::size_t last, std::size_t begin) {
  const std::size_t tokens = rows.front().size() - 1;
  std::vector<std::int32_t> ids;
  for (std::size_t i = first; i < last; ++i) {
    const auto from = rows[i].begin() + static_cast<std::ptrdiff_t>(begin);
    ids.insert(ids.end(), from, from + static_cast<std::ptrdiff_t>(tokens));
  }
  return Tensor::from(ids,
                      {static_cast<std::int64_t>(last - first), static_cast<std::int64_t>(tokens)});
}

/// Rows are computed together up to so many tokens; a longer row alone.
constexpr std::size_t kTokensAtATime = 4096;

std::vector<std::vector<float>> log_probabilities(LanguageModel& model, const Rows& rows) {
  const std::size_t tokens = rows.front().size() - 1;
  const std::size_t at_a_time = std::max<std::size_t>(1, kTokensAtATime / tokens);
  std::vector<std::vector<float>> result;
  for (std::size_t first = 0; first < rows.size(); first += at_a_time) {
    const std::size_t last = std::min(rows.size(), first + at_a_time);
    const auto values =
        model.log_probabilities(tokens_of(rows, first, last, 0), tokens_of(rows, first, last, 1))
            .to_vector<float>();
    for (auto row = values.begin(); row != values.end();
         row += static_cast<std::ptrdiff_t>(tokens)) {
      result.emplace_back(row, row + static_cast<std::ptrdiff_t>(tokens));
    }
  }
  return result;
}

}  // namespace

Rows read_token_rows(const std::filesystem::path& path) {
  const nlohmann::json list = read_json_file(path);
  check(list.is_array() && !list.empty(), "{}: not a list of rows of token ids", path.string());
  Rows rows;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::optional<std::vector<std::int32_t>> row = token_ids(list[i]);
    check(row && row->size() >= 2, "{}: row {} is {}; expected a list of at least two token ids",
          path.string(), i + 1, excerpt(list[i].dump()));
    rows.push_back(*row);
    check(rows[i].size() == rows[0].size(),
          "{}: row {} has {} tokens and row 1 has {}; rows must be equally long", path.string(),
          i + 1, rows[i].size(), rows[0].size());
  }
  return rows;
}

Scores score(const InferenceOptions& options, const Rows& rows) {
  Scores scores;
  run_model(options, [&](LanguageModel& model) {
    check_rows(rows, model.shape());
    std::vector<std::string> less_work;
    if (rows.front().size() - 1 > kTokensAtATime) less_work.emplace_back("shorter rows");
    with_inference_advice(options, less_work, [&] {
      auto values = log_probabilities(model, rows);
      if (context().rank() == 0) scores.log_probabilities = std::move(values);
    });
  });
  double sum = 0.0, count = 0.0;
  for (const auto& row : scores.log_probabilities) {
    for (const float value : row) {
      check(std::isfinite(value),
            "a token's log-probability is {}: the model diverged or is damaged", value);
      sum -= value;
      count += 1.0;
    }
  }
  if (count > 0) scores.loss = sum / count;
  return scores;
}

std::string to_json(const Scores& scores) {
  std::string rows;
  for (const auto& row : scores.log_probabilities) {
    rows += fmt::format("{}[{}]", rows.empty() ? "" : ", ", fmt::join(row, ", "));
  }
  return fmt::format("{{\"loss\": {}, \"log_probabilities\": [{}]}}", scores.loss, rows);
}

}  // namespace tessera
