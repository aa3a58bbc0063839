#include "tools/eval/run_task.h"

#include <algorithm>
#include <optional>

#include "models/tokenizers/regex.h"
#include "models/tokenizers/utf8.h"
#include "runtime/check.h"
#include "runtime/json.h"
#include "tools/generate/continuation.h"
#include "tools/generate/prompts.h"
#include "tools/generate/text_stream.h"

namespace tessera {
namespace {

MatchRules rules_of(const Task& task, const MatchRules& asked) {
  MatchRules rules = task.match;
  if (!asked.until.empty()) rules.until = asked.until;
  if (!asked.extract.empty()) rules.extract = asked.extract;
  if (!asked.ignore.empty()) rules.ignore = asked.ignore;
  rules.ignore_case |= asked.ignore_case;
  rules.ignore_punctuation |= asked.ignore_punctuation;
  rules.ignore_numbers |= asked.ignore_numbers;
  // Checked before a model is loaded.
  if (!rules.extract.empty()) Regex{rules.extract};
  for (const std::string& pattern : rules.ignore) Regex{pattern};
  return rules;
}

std::vector<std::int32_t> tokens_of(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.with_special_tokens(tokenizer.encode(text));
}

/// Unicode's characters, as Python counts them.
double characters(const std::string& text) {
  return static_cast<double>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

Question question_of(const std::string& prompt, const std::vector<std::string>& endings,
                     const Tokenizer& tokenizer) {
  const std::string_view context = stripped(prompt, /*left=*/false, /*right=*/true);
  Question question = {.context = tokens_of(tokenizer, context), .endings = {}};
  check(!question.context.empty(), "the question {} has no token", excerpt(prompt));
  const auto before = static_cast<std::ptrdiff_t>(question.context.size());
  for (const std::string& ending : endings) {
    const std::vector<std::int32_t> both = tokens_of(tokenizer, prompt + " " + ending);
    check(both.size() > question.context.size(), "the choice {} has no token", excerpt(ending));
    question.endings.emplace_back(both.begin() + before, both.end());
  }
  return question;
}

void choose(LanguageModel& model, const OpenTask& task, const Tokenizer& tokenizer,
            TaskResult& result) {
  for (std::size_t i = 0; i < task.entries.size(); ++i) {
    const TaskEntry& entry = task.entries[i];
    TaskSample& sample = result.samples[i];
    sample.choices = entry.choices;
    for (const Question& question : encoded(task.prompts[i], entry, tokenizer)) {
      check_ids(question.context, model.shape().vocab_size);
      for (const auto& ending : question.endings) check_ids(ending, model.shape().vocab_size);
      const std::vector<double> found = log_likelihoods(model, question);
      sample.log_likelihoods.insert(sample.log_likelihoods.end(), found.begin(), found.end());
    }
    const auto score = [&](const std::vector<double>& lengths) {
      const bool right = likeliest(sample.log_likelihoods, lengths) == entry.label;
      sample.scores.push_back(right ? 1.0 : 0.0);
    };
    score(std::vector<double>(entry.choices.size(), 1.0));
    if (!task.task->normalizes) continue;
    std::vector<double> lengths;
    for (const std::string& choice : entry.choices) lengths.push_back(characters(choice));
    score(lengths);
  }
}

/// The tokens before each answer, which leave room for it.
std::vector<std::vector<std::int32_t>> prompt_tokens(const OpenTask& task,
                                                     const Tokenizer& tokenizer,
                                                     std::int64_t context) {
  const std::int64_t room = context - task.options.most_tokens;
  check(room > 0, "--tokens {} leaves no room for a prompt in the model's context of {}",
        task.options.most_tokens, context);
  std::vector<std::vector<std::int32_t>> all;
  for (const std::string& prompt : task.prompts) {
    std::vector<std::int32_t> tokens = tokens_of(tokenizer, prompt);
    const std::int64_t over = static_cast<std::int64_t>(tokens.size()) - room;
    if (over > 0) tokens.erase(tokens.begin(), tokens.begin() + over);
    all.push_back(std::move(tokens));
  }
  return all;
}

void write(LanguageModel& model, const OpenTask& task, const Tokenizer& tokenizer,
           const StopTokens& stop, TaskResult& result) {
  const auto prompts = prompt_tokens(task, tokenizer, model.shape().context);
  std::vector<std::optional<TextStream>> streams(prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) streams[i].emplace(tokenizer, prompts[i]);
  const auto add = [&](std::size_t i, std::int32_t token) {
    std::string& text = result.samples[i].text;
    text += streams[i]->push(token);
    return text_until(text, task.match.until).size() < text.size();
  };
  continue_prompts(model, prompts,
                   {.sampling = {.temperature = 0.0},
                    .tokens = task.options.most_tokens,
                    .batch = task.options.batch,
                    .stop = stop,
                    .choices = std::min(tokenizer.vocab_size(), model.shape().vocab_size)},
                   {.token = add});
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    TaskSample& sample = result.samples[i];
    sample.text = text_until(repaired_utf8(sample.text + streams[i]->finish()), task.match.until);
    sample.answer = extracted_answer(sample.text, task.match);
    sample.scores.push_back(exact_match(sample.answer, sample.right, task.match) ? 1.0 : 0.0);
  }
}

}  // namespace

OpenTask open_task(const TaskOptions& options) {
  const Task& task = find_task(options.task);
  OpenTask opened = {.task = &task,
                     .options = options,
                     .match = rules_of(task, options.match),
                     .entries = read_entries(task, options.questions),
                     .prompts = {}};
  std::vector<TaskEntry> examples;
  if (options.shots > 0) {
    check(!options.examples.empty(), "--shots {} needs --examples {}=FILE", options.shots,
          options.task);
    examples = read_entries(task, options.examples);
  }
  for (const TaskEntry& entry : opened.entries) {
    opened.prompts.push_back(prompt_of(entry, examples, options.shots));
  }
  return opened;
}

std::vector<Question> encoded(const std::string& prompt, const TaskEntry& entry,
                              const Tokenizer& tokenizer) {
  if (entry.ending.empty()) return {question_of(prompt, entry.choices, tokenizer)};
  std::vector<Question> questions;
  for (const std::string& choice : entry.choices) {
    questions.push_back(question_of(prompt + choice, {entry.ending}, tokenizer));
  }
  return questions;
}

TaskResult run_task(LanguageModel& model, const OpenTask& task, const Tokenizer& tokenizer,
                    const StopTokens& stop) {
  TaskResult result = {.task = task.task->name,
                       .shots = static_cast<std::int64_t>(task.options.shots),
                       .metrics = {"acc"},
                       .all = {},
                       .groups = {},
                       .samples = {}};
  for (std::size_t i = 0; i < task.entries.size(); ++i) {
    const TaskEntry& entry = task.entries[i];
    result.samples.push_back(
        {.group = entry.group, .prompt = task.prompts[i], .right = entry.answer, .scores = {}});
  }
  if (task.entries.front().choices.empty()) {
    result.metrics = {"exact_match"};
    write(model, task, tokenizer, stop, result);
  } else {
    if (task.task->normalizes) result.metrics.emplace_back("acc_norm");
    choose(model, task, tokenizer, result);
  }
  summarize(result);
  return result;
}

}  // namespace tessera
