#include "tools/eval/tasks.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "models/tokenizers/regex.h"
#include "models/tokenizers/utf8.h"
#include "runtime/check.h"
#include "runtime/json.h"
#include "tools/data/json_lines.h"

namespace tessera {
namespace {

/// At least two texts.
std::vector<std::string> choices_of(const JsonEntries& fields, const char* key) {
  std::vector<std::string> choices;
  const nlohmann::json& list = fields.at(key);
  const auto is_text = [](const nlohmann::json& value) {
    return value.is_string() && !value.get_ref<const std::string&>().empty();
  };
  check(list.is_array() && list.size() >= 2 && std::ranges::all_of(list, is_text),
        "{} is {}; expected a list of at least two texts", fields.name_of(key),
        excerpt(list.dump()));
  return list.get<std::vector<std::string>>();
}

TaskEntry with_choices(std::string question, std::vector<std::string> choices, std::size_t label) {
  const std::string answer = choices[label];
  return {.question = std::move(question),
          .choices = std::move(choices),
          .label = label,
          .answer = answer};
}

/// A number from `first` on, perhaps as text, of one of the choices.
std::size_t label_of(const JsonEntries& fields, const char* key, std::size_t choices,
                     std::size_t first = 0) {
  const nlohmann::json& value = fields.at(key);
  for (std::size_t label = 0; label < choices; ++label) {
    if (value == first + label || value == std::to_string(first + label)) return label;
  }
  fail("{} is {}; expected a number from {} to {}", fields.name_of(key), excerpt(value.dump()),
       first, first + choices - 1);
}

/// choices: {text, label}, and answerKey, which is one of the labels.
TaskEntry with_labels(std::string question, const JsonEntries& fields) {
  const JsonEntries choices = fields.object("choices");
  const std::vector<std::string> texts = choices_of(choices, "text"),
                                 labels = choices_of(choices, "label");
  const std::string key = fields.text("answerKey");
  const auto right = std::ranges::find(labels, stripped(key, /*left=*/true, /*right=*/false));
  check(labels.size() == texts.size() && right != labels.end(),
        "{} is {}; expected one of {} labels in {}", fields.name_of("answerKey"), excerpt(key),
        texts.size(), excerpt(choices.at("label").dump()));
  return with_choices(std::move(question), texts, static_cast<std::size_t>(right - labels.begin()));
}

/// HellaSwag's texts without the marks of their source, as lm-eval cleans them.
std::string without_marks(const std::string& text) {
  static const Regex title(" \\[title\\]"), mark("\\[.*?\\]"), spaces("  ");
  const std::string titled = replaced(stripped(text, true, true), title, ". ");
  return replaced(replaced(titled, mark, ""), spaces, " ");
}

TaskEntry read_hellaswag(const JsonEntries& fields) {
  std::vector<std::string> endings = choices_of(fields, "endings");
  const std::size_t label = label_of(fields, "label", endings.size());
  for (std::string& ending : endings) ending = without_marks(ending);
  return with_choices(without_marks(fields.text("activity_label") + ": " + fields.text("ctx_a") +
                                    " " + capitalized(fields.text("ctx_b"))),
                      std::move(endings), label);
}

TaskEntry read_arc(const JsonEntries& fields) {
  return with_labels("Question: " + fields.text("question") + "\nAnswer:", fields);
}

TaskEntry read_openbookqa(const JsonEntries& fields) {
  return with_labels(fields.text("question_stem"), fields);
}

TaskEntry read_piqa(const JsonEntries& fields) {
  return with_choices("Question: " + fields.text("goal") + "\nAnswer:",
                      {fields.text("sol1"), fields.text("sol2")}, label_of(fields, "label", 2));
}

TaskEntry read_mmlu(const JsonEntries& fields) {
  const std::vector<std::string> choices = choices_of(fields, "choices");
  check(choices.size() == 4, "{} has {} texts; expected 4", fields.name_of("choices"),
        choices.size());
  const std::string question = fields.text("question");
  TaskEntry entry = with_choices(fmt::format("{}\nA. {}\nB. {}\nC. {}\nD. {}\nAnswer:",
                                             stripped(question, /*left=*/true, /*right=*/true),
                                             choices[0], choices[1], choices[2], choices[3]),
                                 {"A", "B", "C", "D"}, label_of(fields, "answer", choices.size()));
  entry.group = fields.text("subject");
  std::string subject = entry.group;
  std::ranges::replace(subject, '_', ' ');
  entry.description = fmt::format(
      "The following are multiple choice questions (with answers) about {}.\n\n", subject);
  return entry;
}

TaskEntry read_winogrande(const JsonEntries& fields) {
  const std::string sentence = fields.text("sentence");
  const std::size_t gap = sentence.find('_');
  check(gap != std::string::npos, "{} is {}; expected a gap _", fields.name_of("sentence"),
        excerpt(sentence));
  TaskEntry entry =
      with_choices(sentence.substr(0, gap), {fields.text("option1"), fields.text("option2")},
                   label_of(fields, "answer", 2, /*first=*/1));
  const std::string_view behind = std::string_view(sentence).substr(gap + 1);
  entry.ending = stripped(behind, /*left=*/true, /*right=*/true);
  check(!entry.ending.empty(), "{} is {}; expected a text behind the gap",
        fields.name_of("sentence"), excerpt(sentence));
  return entry;
}

TaskEntry read_gsm8k(const JsonEntries& fields) {
  return {.question = "Question: " + fields.text("question") + "\nAnswer:",
          .answer = fields.text("answer")};
}

TaskEntry read_generate(const JsonEntries& fields) {
  return {.question = fields.text("prompt"), .answer = fields.text("answer")};
}

const std::array kTasks = {
    Task{.name = "hellaswag", .read = read_hellaswag, .normalizes = true},
    Task{.name = "arc", .read = read_arc, .normalizes = true},
    Task{.name = "openbookqa", .read = read_openbookqa, .normalizes = true},
    Task{.name = "piqa", .read = read_piqa, .normalizes = true},
    Task{.name = "mmlu", .read = read_mmlu},
    Task{.name = "winogrande", .read = read_winogrande},
    Task{.name = "gsm8k",
         .read = read_gsm8k,
         .match = {.until = {"Question:", "</s>", "<|im_end|>"},
                   .extract = "#### (\\-?[0-9\\.\\,]+)",
                   .ignore = {",", "\\$", "(?s).*#### ", "\\.$"},
                   .ignore_case = true}},
    Task{.name = "generate", .read = read_generate},
};

/// An example: its question with the answer.
std::string solved(const TaskEntry& entry) {
  if (entry.ending.empty()) return entry.question + " " + entry.answer;
  return entry.question + entry.answer + " " + entry.ending;
}

}  // namespace

const Task& find_task(const std::string& name) {
  std::vector<std::string> names;
  for (const Task& task : kTasks) {
    if (name == task.name) return task;
    names.emplace_back(task.name);
  }
  fail("there is no task {}; expected {}", excerpt(name), fmt::join(names, ", "));
}

std::vector<TaskEntry> read_entries(const Task& task, const std::filesystem::path& file) {
  InputStream stream(file);
  std::vector<TaskEntry> entries;
  for_each_json_line(stream,
                     [&](const nlohmann::json& value, const std::string& place) {
                       entries.push_back(task.read(JsonEntries(value, place)));
                     },
                     /*left_out=*/{});
  check(!entries.empty(), "{}: no question here", file.string());
  return entries;
}

std::string prompt_of(const TaskEntry& entry, const std::vector<TaskEntry>& examples,
                      std::size_t shots) {
  std::string prompt = entry.description;
  std::size_t found = 0;
  for (const TaskEntry& example : examples) {
    if (found == shots) break;
    if (example.group != entry.group) continue;
    prompt += solved(example) + "\n\n";
    ++found;
  }
  check(found == shots, "--shots {}: there {} {} example{}{}", shots, found == 1 ? "is" : "are",
        found, found == 1 ? "" : "s", entry.group.empty() ? "" : " of " + excerpt(entry.group));
  return prompt + entry.question;
}

}  // namespace tessera
