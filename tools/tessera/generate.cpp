#include "tools/generate/generate.h"

#include <iostream>
#include <memory>

#include "runtime/check.h"
#include "tools/tessera/commands.h"
#include "tools/tessera/model_options.h"

namespace tessera {
namespace {

struct Options : GenerateOptions {
  std::string ids;
  std::filesystem::path prompts_file;
  bool json = false;
  bool log_probabilities = false;
};

void add_prompt_options(Command& command, Options& options) {
  Command prompt = command.one_of("prompt");
  prompt.option("--prompt", options.prompt, "The text to continue").type("TEXT");
  prompt.option("--ids", options.ids, "Token ids to continue, such as 1,2,3; needs --json")
      .type("IDS");
  prompt
      .option("--prompts", options.prompts_file,
              "One prompt per line; or a JSON list of texts or lists of ids")
      .type("FILE");
  command.option("--batch", options.batch, "The most prompts to continue at the same time")
      .positive()
      .shows_default();
  command.flag("--chat", options.chat,
               "Texts are messages to a chat model, which answers; see its chat template");
  command.option("--system", options.system, "The system's message before --chat's").type("TEXT");
}

void add_sampling_options(Command& command, Options& options) {
  command.option("--tokens", options.tokens, "The most tokens to add").shows_default();
  command
      .option("--stop", options.stop,
              "Tokens that end the text, by id or spelling, next to the model's own")
      .separated_by_commas()
      .type("TOKEN");
  command
      .option("--temperature", options.sampling.temperature,
              "Divides the logits; 0 takes the likeliest token")
      .shows_default();
  command.option("--top-k", options.sampling.top_k, "Only the k likeliest tokens; 0: all")
      .shows_default();
  command
      .option("--top-p", options.sampling.top_p,
              "Only the likeliest tokens that hold this probability; 1: all")
      .shows_default();
  command.option("--seed", options.seed, "Same seed, same text").shows_default();
}

void run(Options& options) {
  if (!options.ids.empty()) {
    check(options.json, "--ids needs --json: without a tokenizer there is no text");
    options.prompts = {{.text = {}, .ids = parse_ids(options.ids)}};
  }
  if (!options.prompts_file.empty()) options.prompts = read_prompts(options.prompts_file);
  check(options.system.empty() || options.chat, "--system needs --chat");
  if (options.json) {
    for (const Generated& generated : generate(options, {})) {
      std::cout << to_json(generated, options.log_probabilities) << '\n';
    }
    std::cout << std::flush;
  } else {
    generate(options, [](std::string_view piece) { std::cout << piece << std::flush; });
    std::cout << std::endl;
  }
}

}  // namespace

void add_generate(Command& app) {
  Command command = app.subcommand("generate", "Continue texts with a trained model.");
  const auto options = std::make_shared<Options>();
  add_model_options(command, *options);
  add_prompt_options(command, *options);
  add_sampling_options(command, *options);
  command.flag("--json", options->json, "Print a line of JSON for each prompt");
  command.flag("--log-probabilities", options->log_probabilities,
               "With --json: also those of the new tokens");
  command.runs([options] { run(*options); });
}

}  // namespace tessera
