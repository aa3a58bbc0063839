// The scores of a task: means with standard errors, of all questions and of each group.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

/// The mean of numbers, and its standard error: the sample deviation over the root of their number. None for
/// one number.
struct MeanScore {
  double mean = 0.0;
  std::optional<double> error;
};

/// A question with the model's answer.
struct TaskSample {
  std::string group;
  std::string prompt;
  std::string right;
  /// The choices and the logarithms of their probabilities; or the text that the model wrote, and the answer
  /// in it.
  std::vector<std::string> choices = {};
  std::vector<double> log_likelihoods = {};
  std::string text = {}, answer = {};
  /// 0 or 1 for each metric of the task.
  std::vector<double> scores;
};

struct GroupScores {
  std::string group;  // empty: all
  std::int64_t questions = 0;
  /// One for each metric.
  std::vector<MeanScore> scores;
};

struct TaskResult {
  std::string task;
  std::int64_t shots = 0;
  std::vector<std::string> metrics;
  GroupScores all;
  /// In the order of the file; none without groups.
  std::vector<GroupScores> groups;
  std::vector<TaskSample> samples;
};

MeanScore mean_score(const std::vector<double>& values);

/// Sets `all` and `groups` from the samples. With groups the mean is weighted by their sizes, and its error
/// is that of the pooled variance within groups, as for the groups of lm-eval; none if a group has one
/// question.
void summarize(TaskResult& result);

/// "mmlu: acc 0.2500 +- 0.0416 over 108 questions, 5 shots", and a line for each group.
std::string to_text(const TaskResult& result);
/// Without the samples.
nlohmann::ordered_json to_json(const TaskResult& result);
/// A line of JSON for each sample.
std::string samples_to_json(const TaskResult& result);

}  // namespace tessera
