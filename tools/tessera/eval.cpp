#include <iostream>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/check.h"
#include "tools/eval/evaluate.h"
#include "tools/tessera/commands.h"
#include "tools/tessera/model_options.h"

namespace tessera {
namespace {

struct Options : EvaluateOptions {
  std::vector<std::string> files;                // of --data
  std::vector<std::string> questions, examples;  // NAME=FILE
  std::int64_t shots = 0;
  TaskOptions task;  // the options that all tasks share
  bool json = false;
};

void add_data_options(Command& command, Options& options) {
  command
      .option("--data", options.files,
              "Token files, perhaps with a name (web=val.bin); more than one --data are measured "
              "one by one. The run's data.val or data.validation by default")
      .one_argument()
      .type("FILES");
  command
      .option("--sequence-length", options.sequence_length,
              "Tokens per sequence; the run's, or the model's context by default")
      .positive();
  command
      .option_function(
          "--rows",
          [rows = &options.rows](const std::string& name) {
            *rows = enum_from_name<RowKind>(name);
          },
          "As data.rows; the run's by default")
      .type("windows|packed|padded")
      .one_of({"windows", "packed", "padded"});
  command
      .option("--document-token", options.document_token,
              "As data.document_token; the run's by default")
      .type("TOKEN");
}

void add_task_options(Command& command, Options& options) {
  command
      .option("--hellaswag", options.hellaswag,
              "A file of multiple-choice questions, as llm.c's dev/data/hellaswag.py writes it")
      .type("FILE");
  command
      .option("--task", options.questions,
              "A task and a file of its questions in JSON lines: hellaswag, arc, openbookqa, piqa, "
              "mmlu, winogrande, gsm8k or generate")
      .one_argument()
      .type("TASK=FILE");
  command.option("--examples", options.examples, "A task's file of examples for --shots")
      .one_argument()
      .type("TASK=FILE");
  command.option("--shots", options.shots, "Examples before each question").not_negative();
  MatchRules& match = options.task.match;
  command.option("--until", match.until, "Texts that end a written answer")
      .one_argument()
      .type("TEXT");
  command
      .option("--extract", match.extract,
              "The expression that finds the answer in a written text: its first group")
      .type("REGEX");
  command
      .option("--ignore", match.ignore, "Expressions that are removed before answers are compared")
      .one_argument()
      .type("REGEX");
  command.flag("--ignore-case", match.ignore_case, "Compare answers without their case");
  command.flag("--ignore-punctuation", match.ignore_punctuation,
               "Compare answers without punctuation");
  command.flag("--ignore-numbers", match.ignore_numbers, "Compare answers without digits");
  command.option("--tokens", options.task.most_tokens, "The most tokens of a written answer")
      .positive()
      .shows_default();
  command.option("--batch", options.task.batch, "The most answers to write at the same time")
      .positive()
      .shows_default();
  command.option("--out", options.samples, "A file of JSON lines for the answers to all questions")
      .type("FILE");
}

/// The parts of NAME=FILE; the name is empty without "=".
std::pair<std::string, std::string> name_and_file(const std::string& text) {
  const std::size_t sign = text.find('=');
  if (sign == text.npos) return {"", text};
  return {text.substr(0, sign), text.substr(sign + 1)};
}

void set_sources(Options& options) {
  for (const std::string& given : options.files) {
    const auto [name, files] = name_and_file(given);
    options.data.push_back({name.empty() ? files : name, files});
  }
}

void set_tasks(Options& options) {
  for (const std::string& given : options.questions) {
    TaskOptions task = options.task;
    std::tie(task.task, task.questions) = name_and_file(given);
    check(!task.task.empty(), "--task {}: expected TASK=FILE", given);
    task.shots = static_cast<std::size_t>(options.shots);
    options.tasks.push_back(task);
  }
  for (const std::string& given : options.examples) {
    const auto [name, file] = name_and_file(given);
    bool asked = false;
    for (TaskOptions& task : options.tasks) {
      if (task.task != name) continue;
      task.examples = file;
      asked = true;
    }
    check(asked, "--examples {}: there is no --task {}=FILE", given, name.empty() ? "TASK" : name);
  }
}

}  // namespace

void add_eval(Command& app) {
  Command command =
      app.subcommand("eval", "Measure a model: loss and bits per byte of each source, and tasks.");
  const auto options = std::make_shared<Options>();
  add_model_options(command, *options);
  add_data_options(command, *options);
  add_task_options(command, *options);
  command.flag("--json", options->json, "Print one line of JSON");
  command.runs([options] {
    set_sources(*options);
    set_tasks(*options);
    const Evaluation evaluation = evaluate(*options);
    std::cout << (options->json ? to_json(evaluation) + "\n" : to_text(evaluation)) << std::flush;
  });
}

}  // namespace tessera
