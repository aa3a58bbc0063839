#include "tools/generate/score.h"

#include <iostream>
#include <memory>

#include "tools/tessera/commands.h"
#include "tools/tessera/model_options.h"

namespace tessera {

void add_score(Command& app) {
  struct Options : InferenceOptions {
    std::filesystem::path tokens;
  };
  Command command =
      app.subcommand("score", "Print the log-probabilities that a model gives to tokens, as JSON.");
  const auto options = std::make_shared<Options>();
  add_model_options(command, *options);
  command.option("--tokens", options->tokens, "A JSON list of rows of token ids, all of one length")
      .required()
      .type("FILE");
  command.runs([options] {
    std::cout << to_json(score(*options, read_token_rows(options->tokens))) << std::endl;
  });
}

}  // namespace tessera
