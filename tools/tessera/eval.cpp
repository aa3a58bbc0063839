#include <iostream>
#include <memory>
#include <string>

#include "tools/eval/evaluate.h"
#include "tools/tessera/commands.h"
#include "tools/tessera/model_options.h"

namespace tessera {

void add_eval(Command& app) {
  struct Options : EvaluateOptions {
    bool json = false;
  };
  Command command =
      app.subcommand("eval", "Measure a model: validation loss, bits per byte, HellaSwag.");
  const auto options = std::make_shared<Options>();
  add_model_options(command, *options);
  command.option("--data", options->data, "Token files; the run's data.val by default")
      .type("FILES");
  command
      .option("--sequence-length", options->sequence_length,
              "Tokens per sequence; the run's, or the model's context by default")
      .positive();
  command
      .option_function(
          "--rows",
          [rows = &options->rows](const std::string& name) {
            *rows = enum_from_name<RowKind>(name);
          },
          "As data.rows; the run's by default")
      .type("windows|packed|padded")
      .one_of({"windows", "packed", "padded"});
  command
      .option("--document-token", options->document_token,
              "As data.document_token; the run's by default")
      .type("TOKEN");
  command
      .option("--hellaswag", options->hellaswag,
              "A file of multiple-choice questions, as llm.c's dev/data/hellaswag.py writes it")
      .type("FILE");
  command.flag("--json", options->json, "Print one line of JSON");
  command.runs([options] {
    const Evaluation evaluation = evaluate(*options);
    std::cout << (options->json ? to_json(evaluation) + "\n" : to_text(evaluation)) << std::flush;
  });
}

}  // namespace tessera
