#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <system_error>

#include "models/tokenizers/tokenizer.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "tools/tessera/commands.h"

namespace tessera {
namespace {

struct EncodeOptions {
  std::filesystem::path tokenizer;
  bool plain = false;
  int threads = 0;
};

void encode_input(const EncodeOptions& options) {
  const auto tokenizer = Tokenizer::load(options.tokenizer);
  const std::string text(std::istreambuf_iterator<char>(std::cin), {});
  check(std::ferror(stdin) == 0, "cannot read standard input: {}",
        std::generic_category().message(errno));
  RankContext rank({.threads = options.threads});
  const ContextGuard guard(rank);
  const auto tokens = options.plain ? tokenizer->encode_plain(text) : tokenizer->encode(text);
  std::cout << fmt::format("{}\n", fmt::join(tokens, " ")) << std::flush;
}

}  // namespace

void add_encode(Command& app) {
  Command command = app.subcommand("encode", "Print the token ids of the text on standard input.");
  const auto options = std::make_shared<EncodeOptions>();
  command
      .option("--tokenizer", options->tokenizer,
              "A folder with tokenizer.json, or with vocab.json and merges.txt")
      .required()
      .type("DIR");
  command.flag("--plain", options->plain, "Added tokens in the text are ordinary text");
  command.option("--threads", options->threads, "0: all cores").shows_default();
  command.runs([options] { encode_input(*options); });
}

}  // namespace tessera
