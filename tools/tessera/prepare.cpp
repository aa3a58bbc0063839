#include "tools/data/prepare.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "tools/tessera/commands.h"

namespace tessera {
namespace {

std::string summary_of(const Manifest& manifest, const std::filesystem::path& out) {
  return fmt::format("{}: {} tokens to train on, {} to validate, vocabulary {} ({}), from {} {}",
                     out.string(), manifest.train_tokens, manifest.val_tokens, manifest.vocab_size,
                     manifest.tokenizer, manifest.inputs.size(),
                     manifest.inputs.size() == 1 ? "file" : "files");
}

}  // namespace

void add_prepare(CLI::App& app) {
  CLI::App* command = app.add_subcommand("prepare", "Turn text files into token files.");
  const auto options = std::make_shared<PrepareOptions>();
  command->add_option("--input", options->inputs, "Text files, joined in this order")
      ->required()
      ->type_name("PATH");
  command
      ->add_option("--tokenizer", options->tokenizer,
                   "bytes, chars, or a folder with a Hugging Face tokenizer")
      ->required()
      ->type_name("bytes|chars|DIR")
      ->check(CLI::IsMember({"bytes", "chars"}) | CLI::ExistingDirectory);
  command->add_option("--out", options->out, "Folder for train.bin, val.bin and the tokenizer")
      ->required()
      ->type_name("DIR");
  command
      ->add_option("--val-fraction", options->val_fraction,
                   "Share of the joined text, from its end, for validation; below 1")
      ->check(CLI::Range(0.0, 0.999999))
      ->type_name("F")
      ->capture_default_str();
  command->callback(
      [options] { std::cout << summary_of(prepare(*options), options->out) << std::endl; });
}

}  // namespace tessera
