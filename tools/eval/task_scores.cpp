#include "tools/eval/task_scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

/// The scores of a group, or of all samples.
GroupScores scores_of(const TaskResult& result, const std::string& group) {
  GroupScores scores = {.group = group, .questions = 0, .scores = {}};
  for (std::size_t metric = 0; metric < result.metrics.size(); ++metric) {
    std::vector<double> values;
    for (const TaskSample& sample : result.samples) {
      if (group.empty() || sample.group == group) values.push_back(sample.scores[metric]);
    }
    scores.questions = static_cast<std::int64_t>(values.size());
    scores.scores.push_back(mean_score(values));
  }
  return scores;
}

/// The error of the mean of all groups.
std::optional<double> pooled_error(const std::vector<GroupScores>& groups, std::size_t metric) {
  double sum = 0.0, questions = 0.0;
  for (const GroupScores& group : groups) {
    const std::optional<double>& error = group.scores[metric].error;
    if (!error) return std::nullopt;
    const auto size = static_cast<double>(group.questions);
    sum += (size - 1) * size * *error * *error;
    questions += size;
  }
  return std::sqrt(sum / (questions - static_cast<double>(groups.size())) / questions);
}

std::string line_of(const std::string& name, const TaskResult& result, const GroupScores& scores) {
  std::string line = name + ":";
  for (std::size_t i = 0; i < scores.scores.size(); ++i) {
    const MeanScore& score = scores.scores[i];
    line += fmt::format("{} {} {:.4f}", i == 0 ? "" : ",", result.metrics[i], score.mean);
    if (score.error) line += fmt::format(" +- {:.4f}", *score.error);
  }
  return line + fmt::format(" over {} questions", scores.questions);
}

Json json_of(const TaskResult& result, const GroupScores& scores) {
  Json object = {{"questions", scores.questions}};
  for (std::size_t i = 0; i < scores.scores.size(); ++i) {
    const MeanScore& score = scores.scores[i];
    object[result.metrics[i]] = score.mean;
    object[result.metrics[i] + "_stderr"] = score.error ? Json(*score.error) : Json();
  }
  return object;
}

}  // namespace

MeanScore mean_score(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  double sum = 0.0, squares = 0.0;
  for (const double value : values) sum += value;
  const double mean = sum / count;
  for (const double value : values) squares += (value - mean) * (value - mean);
  if (values.size() < 2) return {mean, std::nullopt};
  return {mean, std::sqrt(squares / (count - 1)) / std::sqrt(count)};
}

void summarize(TaskResult& result) {
  for (const TaskSample& sample : result.samples) {
    const auto same = [&](const GroupScores& scores) { return scores.group == sample.group; };
    if (sample.group.empty() || std::ranges::any_of(result.groups, same)) continue;
    result.groups.push_back(scores_of(result, sample.group));
  }
  result.all = scores_of(result, "");
  if (result.groups.empty()) return;
  for (std::size_t i = 0; i < result.metrics.size(); ++i) {
    result.all.scores[i].error = pooled_error(result.groups, i);
  }
}

std::string to_text(const TaskResult& result) {
  std::string text = line_of(result.task, result, result.all);
  if (result.shots > 0) text += fmt::format(", {} shots", result.shots);
  for (const GroupScores& group : result.groups) {
    text += "\n  " + line_of(group.group, result, group);
  }
  return text + "\n";
}

Json to_json(const TaskResult& result) {
  Json object = {{"task", result.task}, {"shots", result.shots}};
  object.update(json_of(result, result.all));
  for (const GroupScores& group : result.groups) {
    object["groups"][group.group] = json_of(result, group);
  }
  return object;
}

std::string samples_to_json(const TaskResult& result) {
  std::string lines;
  for (const TaskSample& sample : result.samples) {
    Json object = {{"task", result.task}, {"prompt", sample.prompt}, {"right", sample.right}};
    if (!sample.group.empty()) object["group"] = sample.group;
    if (sample.choices.empty()) {
      object.update({{"text", sample.text}, {"answer", sample.answer}});
    } else {
      object.update({{"choices", sample.choices}, {"log_likelihoods", sample.log_likelihoods}});
    }
    for (std::size_t i = 0; i < sample.scores.size(); ++i) {
      object[result.metrics[i]] = sample.scores[i];
    }
    lines += object.dump() + "\n";
  }
  return lines;
}

}  // namespace tessera
