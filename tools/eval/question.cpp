#include "tools/eval/question.h"

#include <algorithm>
#include <cmath>

#include "runtime/check.h"

namespace tessera {
namespace {

std::int64_t count(const std::vector<std::int32_t>& tokens) {
  return static_cast<std::int64_t>(tokens.size());
}

std::vector<double> token_counts(const Question& question) {
  std::vector<double> counts;
  for (const auto& ending : question.endings) counts.push_back(static_cast<double>(ending.size()));
  return counts;
}

}  // namespace

QuestionRows rows_of(const Question& question, std::int64_t model_context) {
  QuestionRows all = {.rows = static_cast<std::int64_t>(question.endings.size())};
  for (const auto& ending : question.endings) {
    check(count(ending) <= model_context,
          "an ending of {} tokens is longer than the model's context of {}", ending.size(),
          model_context);
    // The last token is predicted, not read.
    const std::int64_t kept = std::min(count(question.context), model_context + 1 - count(ending));
    all.scored.emplace_back(kept - 1, kept - 1 + count(ending));
    all.length = std::max(all.length, all.scored.back().second);
  }
  for (std::size_t i = 0; i < question.endings.size(); ++i) {
    const std::int64_t kept = all.scored[i].first + 1;
    std::vector<std::int32_t> row(question.context.end() - kept, question.context.end());
    row.insert(row.end(), question.endings[i].begin(), question.endings[i].end());
    row.resize(static_cast<std::size_t>(all.length + 1));
    all.inputs.insert(all.inputs.end(), row.begin(), row.end() - 1);
    all.targets.insert(all.targets.end(), row.begin() + 1, row.end());
  }
  return all;
}

std::vector<double> log_likelihoods(const QuestionRows& rows,
                                    const std::vector<float>& log_probabilities) {
  std::vector<double> sums;
  auto row = log_probabilities.begin();
  for (const auto& [first, last] : rows.scored) {
    double sum = 0.0;
    for (std::int64_t i = first; i < last; ++i) sum += row[i];
    check(std::isfinite(sum), "the log-probability of an ending is {}", sum);
    sums.push_back(sum);
    row += rows.length;
  }
  return sums;
}

std::vector<double> log_likelihoods(LanguageModel& model, const Question& question) {
  const QuestionRows rows = rows_of(question, model.shape().context);
  const Shape shape = {rows.rows, rows.length};
  return log_likelihoods(
      rows,
      model.log_probabilities(Tensor::from(rows.inputs, shape), Tensor::from(rows.targets, shape))
          .to_vector<float>());
}

std::size_t likeliest(const std::vector<double>& log_likelihoods,
                      const std::vector<double>& lengths) {
  std::vector<double> means;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    means.push_back(log_likelihoods[i] / lengths[i]);
  }
  return static_cast<std::size_t>(std::ranges::max_element(means) - means.begin());
}

std::int64_t right_answers(LanguageModel& model, const std::vector<Question>& questions, int rank,
                           int ranks) {
  std::int64_t right = 0;
  const auto mine = static_cast<std::size_t>(rank), step = static_cast<std::size_t>(ranks);
  for (std::size_t first = 0; first < questions.size(); first += step) {
    // A rank without a question answers the first one again: the passes are collectives.
    const bool has_one = first + mine < questions.size();
    const Question& question = questions[has_one ? first + mine : first];
    const std::size_t answer = likeliest(log_likelihoods(model, question), token_counts(question));
    if (answer == question.label && has_one) ++right;
  }
  return right;
}

}  // namespace tessera
