#include <CLI/CLI.hpp>
#include <iostream>
#include <map>
#include <memory>
#include <string>

#include "tools/eval/evaluate.h"
#include "tools/tessera/commands.h"
#include "tools/tessera/model_options.h"

namespace tessera {

void add_eval(CLI::App& app) {
  struct Options : EvaluateOptions {
    bool json = false;
  };
  CLI::App* command =
      app.add_subcommand("eval", "Measure a model: validation loss, bits per byte, HellaSwag.");
  const auto options = std::make_shared<Options>();
  add_model_options(*command, *options);
  command->add_option("--data", options->data, "Token files; the run's data.val by default")
      ->type_name("FILES");
  command
      ->add_option("--sequence-length", options->sequence_length,
                   "Tokens per sequence; the run's, or the model's context by default")
      ->check(CLI::PositiveNumber);
  command->add_option("--rows", options->rows, "As data.rows; the run's by default")
      ->type_name("windows|packed|padded")
      ->transform(
          CLI::CheckedTransformer(std::map<std::string, RowKind>{{"windows", RowKind::windows},
                                                                 {"packed", RowKind::packed},
                                                                 {"padded", RowKind::padded}}));
  command
      ->add_option("--document-token", options->document_token,
                   "As data.document_token; the run's by default")
      ->type_name("TOKEN");
  command
      ->add_option(
          "--hellaswag", options->hellaswag,
          "A file of multiple-choice questions, as llm.c's dev/data/hellaswag.py writes it")
      ->type_name("FILE");
  command->add_flag("--json", options->json, "Print one line of JSON");
  command->callback([options] {
    const Evaluation evaluation = evaluate(*options);
    std::cout << (options->json ? to_json(evaluation) + "\n" : to_text(evaluation)) << std::flush;
  });
}

}  // namespace tessera
