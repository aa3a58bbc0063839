// Fuzz target: a .jsonl file as the questions of every task of `tessera eval`.
#include "tools/eval/tasks.h"

#include "models/tokenizers/bytes.h"
#include "tests/fuzz/fuzz.h"
#include "tools/eval/run_task.h"

namespace tessera::fuzz {

bool accepts(std::string_view input) {
  write_file("lines.jsonl", input);
  const ByteTokenizer bytes;
  bool accepted = false;
  for (const char* name :
       {"hellaswag", "arc", "openbookqa", "piqa", "mmlu", "winogrande", "gsm8k", "generate"}) {
    accepted |= reads([&] {
      const OpenTask task =
          open_task({.task = name, .questions = folder() / "lines.jsonl", .examples = {}});
      for (std::size_t i = 0; i < task.entries.size(); ++i) {
        const TaskEntry& entry = task.entries[i];
        if (entry.choices.empty()) continue;
        require(entry.label < entry.choices.size(), "the right choice is one of the choices");
        for (const Question& question : encoded(task.prompts[i], entry, bytes)) {
          for (std::size_t k = 0; k < question.endings.size(); ++k) {
            const bool fills = !entry.ending.empty();
            const std::size_t size = question.context.size() + question.endings[k].size();
            require(fills || size == task.prompts[i].size() + 1 + entry.choices[k].size(),
                    "every byte of a prompt and a choice is a token");
          }
        }
      }
    });
  }
  return accepted;
}

}  // namespace tessera::fuzz
