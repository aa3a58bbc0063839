#include "tools/generate/generate.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "tools/tessera/commands.h"

namespace tessera {

void add_generate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("generate", "Continue a text with a trained model.");
  const auto options = std::make_shared<GenerateOptions>();
  command
      ->add_option("--model", options->model,
                   "A run folder, a Hugging Face model folder, or org/name in the hub's cache")
      ->required()
      ->type_name("DIR");
  command->add_option("--prompt", options->prompt, "The text to continue")
      ->required()
      ->type_name("TEXT");
  command->add_option("--tokens", options->tokens, "How many tokens to add")->capture_default_str();
  command
      ->add_option("--temperature", options->sampling.temperature,
                   "Divides the logits; 0 takes the likeliest token")
      ->capture_default_str();
  command->add_option("--top-k", options->sampling.top_k, "Only the k likeliest tokens; 0: all")
      ->capture_default_str();
  command
      ->add_option("--top-p", options->sampling.top_p,
                   "Only the likeliest tokens that hold this probability; 1: all")
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Same seed, same text")->capture_default_str();
  command->add_option("--device", options->device, "auto, cpu, cuda or cuda:N")
      ->capture_default_str();
  command->add_option("--threads", options->threads, "0: all cores")->capture_default_str();
  command->callback([options] {
    generate(*options, [](std::string_view piece) { std::cout << piece << std::flush; });
    std::cout << std::endl;
  });
}

}  // namespace tessera
