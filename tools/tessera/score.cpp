#include "tools/generate/score.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "tools/tessera/commands.h"
#include "tools/tessera/model_options.h"

namespace tessera {

void add_score(CLI::App& app) {
  struct Options : InferenceOptions {
    std::filesystem::path tokens;
  };
  CLI::App* command = app.add_subcommand(
      "score", "Print the log-probabilities that a model gives to tokens, as JSON.");
  const auto options = std::make_shared<Options>();
  add_model_options(*command, *options);
  command
      ->add_option("--tokens", options->tokens,
                   "A JSON list of rows of token ids, all of one length")
      ->required()
      ->type_name("FILE");
  command->callback([options] {
    std::cout << to_json(score(*options, read_token_rows(options->tokens))) << std::endl;
  });
}

}  // namespace tessera
