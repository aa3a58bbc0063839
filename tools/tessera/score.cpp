#include "tools/generate/score.h"

#include <iostream>
#include <memory>

#include "runtime/check.h"
#include "tools/generate/teacher_scores.h"
#include "tools/tessera/commands.h"
#include "tools/tessera/model_options.h"

namespace tessera {
namespace {

struct Options : TeacherOptions {
  std::filesystem::path tokens;
};

void add_input_options(Command& command, Options& options) {
  Command input = command.one_of("input");
  const Option tokens =
      input
          .option("--tokens", options.tokens, "A JSON list of rows of token ids, all of one length")
          .type("FILE");
  input
      .option("--data", options.data,
              "Token files; writes the teacher file of each next to it, and prints a line about it")
      .type("FILES");
  command
      .option("--top-k", options.top_k,
              "With --data: so many of the likeliest next tokens of each token")
      .range(std::int64_t{1}, kMostPlaces)
      .excludes(tokens);
  command
      .option("--sequence-length", options.sequence_length,
              "With --data: the model sees so many tokens of a document at a time; its context by "
              "default")
      .positive()
      .excludes(tokens);
  command
      .option("--document-token", options.document_token,
              "With --data, for token files without marks: as data.document_token; the run's by "
              "default")
      .type("TOKEN")
      .excludes(tokens);
}

void run(const Options& options) {
  if (!options.tokens.empty()) {
    std::cout << to_json(score(options, read_token_rows(options.tokens))) << std::endl;
    return;
  }
  check(options.top_k > 0, "--data needs --top-k");
  write_teacher_files(
      options, [](const TeacherScores& scores) { std::cout << to_text(scores) << std::flush; });
}

}  // namespace

void add_score(Command& app) {
  Command command = app.subcommand("score",
                                   "Print the log-probabilities that a model gives to tokens, as "
                                   "JSON, or write a teacher's files.");
  const auto options = std::make_shared<Options>();
  add_model_options(command, *options);
  add_input_options(command, *options);
  command.runs([options] { run(*options); });
}

}  // namespace tessera
