// tessera eval --task: scores equal lm-eval's. tests/golden/README.md describes the files.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "runtime/file.h"
#include "runtime/json.h"
#include "tests/support/error_of.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/run_program.h"
#include "tools/eval/evaluate.h"
#include "tools/eval/exact_match.h"
#include "tools/eval/run_task.h"

namespace tessera {
namespace {

using Catch::Contains;
using nlohmann::json;
using test::TemporaryDirectory;

std::filesystem::path folder() {
  return std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/golden/eval";
}

/// A run of the golden file, as options.
TaskOptions options_of(const json& run) {
  const std::string task = run["task"];
  return {.task = task,
          .questions = folder() / (task + ".jsonl"),
          .examples = folder() / (task + "_examples.jsonl"),
          .shots = run["shots"],
          .match = {.until = task == "gsm8k" ? std::vector<std::string>{"e", "Question:"}
                                             : std::vector<std::string>{}},
          .most_tokens = 24,
          .batch = 3};
}

void check_scores(const GroupScores& scores, const std::vector<std::string>& metrics,
                  const json& expected) {
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    CAPTURE(metrics[i]);
    CHECK(scores.scores[i].mean == Approx(expected[metrics[i]].get<double>()).epsilon(1e-12));
    const json& error = expected[metrics[i] + "_stderr"];
    REQUIRE(scores.scores[i].error.has_value() == !error.is_null());
    if (scores.scores[i].error) {
      CHECK(*scores.scores[i].error == Approx(error.get<double>()).epsilon(1e-9));
    }
  }
}

void check_sample(const TaskSample& sample, const std::vector<std::string>& metrics,
                  const json& expected) {
  CAPTURE(expected["prompt"]);
  if (!expected.contains("contexts")) CHECK(sample.prompt == expected["prompt"]);
  if (expected.contains("text")) {
    CHECK(sample.text == expected["text"]);
    CHECK(sample.answer == expected["extracted"]);
    CHECK(sample.right == expected["target"]);
  } else {
    const auto values = expected["log_likelihoods"].get<std::vector<double>>();
    REQUIRE(sample.log_likelihoods.size() == values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (expected.contains("contexts")) {
        CHECK(sample.prompt + sample.choices[i] == expected["contexts"][i]);
      } else {
        CHECK(" " + sample.choices[i] == expected["continuations"][i]);
      }
      CHECK(sample.log_likelihoods[i] == Approx(values[i]).margin(1e-4));
    }
  }
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    CHECK(sample.scores[i] == expected[metrics[i]].get<double>());
  }
}

Evaluation evaluate_tasks(std::vector<TaskOptions> tasks, int ranks = 1) {
  EvaluateOptions options;
  options.model = folder() / "model";
  options.device = "cpu";
  options.ranks = ranks;
  options.threads = 1;
  options.tasks = std::move(tasks);
  return evaluate(options);
}

/// The message about a file with this line behind an empty one.
std::string error_of(const std::string& task, const std::string& line) {
  const TemporaryDirectory temporary;
  write_file_atomically(temporary / "q.jsonl", "\n" + line + "\n");
  return test::error_of(
      [&] { open_task({.task = task, .questions = temporary / "q.jsonl", .examples = {}}); });
}

}  // namespace

TEST_CASE("eval tasks: log-likelihoods, scores and standard errors are lm-eval's") {
  const json expected = read_json_file(folder() / "expected.json");
  std::vector<TaskOptions> tasks;
  for (const json& run : expected["runs"]) tasks.push_back(options_of(run));
  const Evaluation found = evaluate_tasks(tasks);
  REQUIRE(found.tasks.size() == expected["runs"].size());
  for (std::size_t i = 0; i < found.tasks.size(); ++i) {
    const json& run = expected["runs"][i];
    const TaskResult& result = found.tasks[i];
    CAPTURE(result.task, result.shots);
    check_scores(result.all, result.metrics, run["metrics"][result.task]);
    for (const GroupScores& group : result.groups) {
      CAPTURE(group.group);
      check_scores(group, result.metrics, run["metrics"][result.task + "_" + group.group]);
    }
    CHECK(result.groups.size() + 1 == run["metrics"].size());
    REQUIRE(result.samples.size() == run["samples"].size());
    for (std::size_t k = 0; k < result.samples.size(); ++k) {
      check_sample(result.samples[k], result.metrics, run["samples"][k]);
    }
  }
}

TEST_CASE("eval tasks: extraction and exact match are lm-eval's") {
  const json cases = read_json_file(folder() / "expected.json")["matches"];
  CHECK(cases.size() > 10);
  for (const json& one : cases) {
    CAPTURE(one.dump());
    const json& options = one["options"];
    const MatchRules rules = {
        .until = {},
        .extract = one["extract"],
        .ignore = options.value("regexes_to_ignore", std::vector<std::string>()),
        .ignore_case = options.value("ignore_case", false),
        .ignore_punctuation = options.value("ignore_punctuation", false),
        .ignore_numbers = options.value("ignore_numbers", false)};
    const std::string answer = extracted_answer(one["text"], rules);
    CHECK(answer == one["answer"]);
    CHECK(exact_match(answer, one["right"], rules) == (one["exact_match"].get<double>() == 1.0));
  }
  CHECK(text_until("a\nb\nStop", {"Stop", "\n"}) == "a");
}

TEST_CASE("eval tasks: results depend on neither ranks nor the batch") {
  const json runs = read_json_file(folder() / "expected.json")["runs"];
  TaskOptions choices = options_of(runs[6]), texts = options_of(runs[10]);
  const Evaluation one = evaluate_tasks({choices, texts});
  texts.batch = 1;
  const Evaluation two = evaluate_tasks({choices, texts}, 2);
  REQUIRE(two.tasks.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(samples_to_json(two.tasks[i]) == samples_to_json(one.tasks[i]));
  }
}

TEST_CASE("eval tasks: the program prints scores of tasks, and writes every answer to a file") {
  const TemporaryDirectory temporary;
  const std::string questions = "mmlu=" + (folder() / "mmlu.jsonl").string(),
                    examples = "mmlu=" + (folder() / "mmlu_examples.jsonl").string(),
                    piqa = "piqa=" + (folder() / "piqa.jsonl").string();
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"eval", "--model", (folder() / "model").string(), "--device", "cpu",
                               "--task", questions});
    return test::run(more);
  };
  const test::Outcome text = run({"--task", piqa, "--out", temporary / "answers.jsonl"});
  INFO(text.err);
  REQUIRE(text.status == 0);
  CHECK(text.out ==
        "mmlu: acc 0.3333 +- 0.1884 over 9 questions\n"
        "  abstract_algebra: acc 0.3333 +- 0.3333 over 3 questions\n"
        "  world_religions: acc 0.5000 +- 0.5000 over 2 questions\n"
        "  anatomy: acc 0.2500 +- 0.2500 over 4 questions\n"
        "piqa: acc 0.2000 +- 0.2000, acc_norm 0.4000 +- 0.2449 over 5 questions\n");
  const std::string answers = read_text_file(temporary / "answers.jsonl");
  CHECK(std::count(answers.begin(), answers.end(), '\n') == 14);
  const json first = json::parse(answers.substr(0, answers.find('\n')));
  CHECK(first["right"] == "C");
  CHECK(first["group"] == "abstract_algebra");
  CHECK(first["log_likelihoods"].size() == 4);
  const test::Outcome shots = run({"--examples", examples, "--shots", "2", "--json"});
  CHECK(shots.status == 0);
  const json object = json::parse(shots.out);
  CHECK(object["tasks"][0]["shots"] == 2);
  CHECK(object["tasks"][0]["groups"]["anatomy"]["questions"] == 4);
  CHECK(object["val_loss"].is_null());
  const test::Outcome outcome = run({"--shots", "2"});
  CHECK(outcome.status == 1);
  CHECK_THAT(outcome.err, Contains("--shots 2 needs --examples mmlu=FILE"));
  CHECK_THAT(run({"--examples", piqa}).err, Contains("there is no --task piqa=FILE"));
  CHECK_THAT(run({"--task", "piqa"}).err, Contains("--task piqa: expected TASK=FILE"));
  CHECK_THAT(run({"--task", "generate=x", "--extract", "("}).err, Contains("\"(\" is not valid"));
}

TEST_CASE("eval tasks: a bad entry is named by file, line and field") {
  CHECK_THAT(
      error_of("arc",
               R"({"question": "Why?", "choices": {"text": ["a", "b"], "label": ["A", "B"]}})"),
      Contains("q.jsonl:2: answerKey is missing"));
  CHECK_THAT(
      error_of("arc",
               R"({"question": "Why?", "choices": {"label": ["A", "B"]}, "answerKey": "A"})"),
      Contains("q.jsonl:2: choices: text is missing"));
  CHECK_THAT(
      error_of("arc", R"({"question": "Why?", "choices": {"text": ["a", "b"], "label": ["A", "B"]},
                          "answerKey": "C"})"),
      Contains("q.jsonl:2"));
  CHECK_THAT(
      error_of(
          "openbookqa",
          R"({"question_stem": "Why", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "C"})"),
      Contains("q.jsonl:2: answerKey is \"C\"; expected one of 2 labels in \"["));
  CHECK_THAT(error_of("piqa", R"({"goal": "g", "sol1": "a", "sol2": "b", "label": 2})"),
             Contains("q.jsonl:2: label is \"2\"; expected a number from 0 to 1"));
  CHECK_THAT(error_of("piqa", R"({"goal": "g", "sol1": 5, "sol2": "b", "label": 0})"),
             Contains("q.jsonl:2: sol1 is 5; expected text"));
  CHECK_THAT(
      error_of("mmlu",
               R"({"question": "q", "subject": "s", "choices": ["a", "b", "c"], "answer": 0})"),
      Contains("q.jsonl:2: choices has 3 texts; expected 4"));
  CHECK_THAT(
      error_of(
          "hellaswag",
          R"({"activity_label": "a", "ctx_a": "b", "ctx_b": "", "endings": [], "label": "0"})"),
      Contains("q.jsonl:2: endings is"));
  const auto gap = [](const std::string& sentence, const std::string& answer) {
    return error_of("winogrande", R"({"option1": "a", "option2": "b", "sentence": ")" + sentence +
                                      R"(", "answer": ")" + answer + "\"}");
  };
  CHECK_THAT(gap("No gap.", "1"), Contains("q.jsonl:2: sentence is \"No gap.\"; expected a gap _"));
  CHECK_THAT(gap("The end is _ ", "1"), Contains("expected a text behind the gap"));
  CHECK_THAT(gap("The _ is.", "0"), Contains("expected a number from 1 to 2"));
  CHECK_THAT(error_of("generate", R"({"prompt": "p"})"), Contains("q.jsonl:2: answer is missing"));
  CHECK_THAT(error_of("generate", "[1]"), Contains("q.jsonl:2 is"));
  CHECK_THAT(error_of("generate", "{"), Contains("q.jsonl:2: "));
  CHECK_THAT(error_of("boolq", "{}"),
             Contains("there is no task \"boolq\"; expected hellaswag, arc"));
}

TEST_CASE("eval tasks: a label may be a number or text, and examples are those of a subject") {
  const TemporaryDirectory temporary;
  write_file_atomically(
      temporary / "q.jsonl",
      R"({"activity_label": "A", "ctx_a": "b", "ctx_b": "C", "endings": ["x", "y"], "label": 1})");
  const OpenTask task =
      open_task({.task = "hellaswag", .questions = temporary / "q.jsonl", .examples = {}});
  CHECK(task.entries[0].label == 1);
  CHECK(task.prompts[0] == "A: b C");
  CHECK_THROWS_WITH(open_task({.task = "mmlu",
                               .questions = folder() / "mmlu.jsonl",
                               .examples = folder() / "mmlu_examples.jsonl",
                               .shots = 3}),
                    Contains("--shots 3: there are 2 examples of \"abstract_algebra\""));
}

TEST_CASE(
    "eval: each source has its own loss and perplexity, and all of them the mean over tokens") {
  const TemporaryDirectory temporary;
  for (const char* name : {"a", "b"}) {
    const std::string text(*name == 'a' ? 700 : 300, *name);
    std::filesystem::create_directory(temporary / name);
    write_file_atomically(temporary / name / "text.txt", text + " and more of it.");
    REQUIRE(test::run({"prepare", "--input", temporary / name / "text.txt", "--tokenizer",
                       (folder() / "model").string(), "--out", temporary / name / "data",
                       "--val-fraction", "0"})
                .status == 0);
  }
  const auto measure = [&](const std::vector<std::string>& data) {
    std::vector<std::string> command = {
        "eval",     "--model", (folder() / "model").string(), "--json",
        "--device", "cpu",     "--sequence-length",           "16"};
    for (const std::string& one : data) command.insert(command.end(), {"--data", one});
    const test::Outcome outcome = test::run(command);
    INFO(outcome.err);
    REQUIRE(outcome.status == 0);
    return json::parse(outcome.out);
  };
  const std::string a = temporary / "a/data/train.bin", b = temporary / "b/data/train.bin";
  const json both = measure({"first=" + a, b}), one = measure({a}), other = measure({b});
  REQUIRE(both["sources"].size() == 2);
  CHECK(both["sources"][0]["name"] == "first");
  CHECK(both["sources"][1]["name"] == b);
  for (const char* key : {"val_loss", "perplexity", "bits_per_byte", "tokens", "sequences"}) {
    CHECK(both["sources"][0][key] == one[key]);
    CHECK(both["sources"][1][key] == other[key]);
  }
  const double tokens_a = one["tokens"], tokens_b = other["tokens"];
  const double mean =
      (one["val_loss"].get<double>() * tokens_a + other["val_loss"].get<double>() * tokens_b) /
      (tokens_a + tokens_b);
  CHECK(both["val_loss"].get<double>() == Approx(mean).epsilon(1e-12));
  CHECK(both["perplexity"].get<double>() == Approx(std::exp(mean)).epsilon(1e-12));
}

}  // namespace tessera
