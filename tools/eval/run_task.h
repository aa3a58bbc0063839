// A model's answers to the questions of a task.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "models/language_model.h"
#include "models/tokenizers/tokenizer.h"
#include "tools/eval/question.h"
#include "tools/eval/task_scores.h"
#include "tools/eval/tasks.h"
#include "tools/generate/stop_tokens.h"

namespace tessera {

struct TaskOptions {
  std::string task;
  /// Files of JSON lines. `examples` may be empty without shots.
  std::filesystem::path questions, examples;
  std::size_t shots = 0;
  /// In place of the task's rules where they are not empty or false.
  MatchRules match = {};
  /// A written answer has at most so many.
  std::int64_t most_tokens = 256;
  /// Answers that are written at the same time.
  std::int64_t batch = 16;
};

/// A task with its questions, read before a model is loaded.
struct OpenTask {
  const Task* task;
  TaskOptions options;
  MatchRules match;
  std::vector<TaskEntry> entries;
  std::vector<std::string> prompts;
};

/// Raises Error if the task, a file or a rule is wrong.
OpenTask open_task(const TaskOptions& options);

/// A prompt and one choice each behind a space, as lm-eval encodes them: white space at the end of the prompt
/// belongs to the ending, and an ending is the tokens of both behind the prompt's. Raises Error if
/// nothing follows. An entry with an ending has as many questions as choices: the choice directly behind the
/// prompt, and the ending. Otherwise there is one question.
std::vector<Question> encoded(const std::string& prompt, const TaskEntry& entry,
                              const Tokenizer& tokenizer);

/// A collective of all ranks that share the model's weights, with the same result on each. An answer is
/// written greedily, until one of `stop` or of the rules' texts, from the last tokens of a long prompt.
/// Results do not depend on the batch.
TaskResult run_task(LanguageModel& model, const OpenTask& task, const Tokenizer& tokenizer,
                    const StopTokens& stop);

}  // namespace tessera
