// The tasks that `tessera eval --task` knows: how an entry of a JSONL file becomes a question.
//
//   task         fields of an entry                               scores
//   hellaswag    activity_label, ctx_a, ctx_b, endings, label     acc, acc_norm
//   arc          question, choices: {text, label}, answerKey      acc, acc_norm
//   openbookqa   question_stem, choices: {text, label}, answerKey acc, acc_norm
//   piqa         goal, sol1, sol2, label                          acc, acc_norm
//   mmlu         question, subject, choices, answer (from 0)      acc, also of each subject
//   winogrande   sentence, option1, option2, answer (from 1)      acc
//   gsm8k        question, answer                                 exact_match
//   generate     prompt, answer                                   exact_match
//
// Prompts, separators and scores are those of lm-eval 0.4.13: of its task files hellaswag, arc_easy (as
// arc_challenge), openbookqa, piqa and winogrande in version 1.0, mmlu in version 1.0 of its template, and
// gsm8k's strict-match in version 3.0. Examples are the first of their file, as its sampler `first_n` takes
// them. The options of winogrande fill the gap `_` of the sentence, and the text behind the gap is scored: the
// partial evaluation of Trinh and Le (2018).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tools/data/json_entries.h"
#include "tools/eval/exact_match.h"

namespace tessera {

/// A question, and its answer.
struct TaskEntry {
  std::string question;
  /// Empty: the model writes the answer.
  std::vector<std::string> choices = {};
  /// The text behind any of the choices. If it is not empty, a choice belongs to the question and this is scored.
  std::string ending = {};
  /// The number of the right choice.
  std::size_t label = 0;
  /// The right choice, or the text that the model should write.
  std::string answer;
  /// MMLU's subject, and the line before all of its questions.
  std::string group = {}, description = {};
};

struct Task {
  const char* name;
  /// Raises Error with the place of the entry and the field.
  TaskEntry (*read)(const JsonEntries& fields);
  /// Whether there is acc_norm: the choice with the largest log-likelihood per character.
  bool normalizes = false;
  /// How written answers are compared.
  MatchRules match = {};
};

/// Raises Error with the names of all tasks if no task has this name.
const Task& find_task(const std::string& name);

/// The entries of a file of JSON lines, packed or not. Raises Error with file, line and field.
std::vector<TaskEntry> read_entries(const Task& task, const std::filesystem::path& file);

/// The text before an answer: description, the first `shots` examples of the entry's group with their
/// answers, and the question. Raises Error if there are fewer examples.
std::string prompt_of(const TaskEntry& entry, const std::vector<TaskEntry>& examples,
                      std::size_t shots);

}  // namespace tessera
