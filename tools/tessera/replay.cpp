#include "tools/replay/replay.h"

#include <iostream>
#include <memory>

#include "tools/replay/bisect.h"
#include "tools/tessera/commands.h"

namespace tessera {
namespace {

void print(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) std::cout << line << '\n';
  std::cout << std::flush;
}

}  // namespace

void add_replay(Command& app) {
  struct Options {
    std::filesystem::path run;
    std::int64_t step = 0;
  };
  Command command = app.subcommand(
      "replay", "Run a step of a run again, bit for bit, with every tensor checked.");
  const auto options = std::make_shared<Options>();
  command.option("run", options->run, "A run folder").required().type("RUN");
  command.option("step", options->step, "The step to run again").required().type("STEP");
  command.runs([options] { print(replay(options->run, options->step)); });
}

void add_bisect(Command& app) {
  struct Options {
    std::filesystem::path a, b;
  };
  Command command = app.subcommand("bisect", "Name the first tensor in which two runs differ.");
  const auto options = std::make_shared<Options>();
  command.option("run_a", options->a, "A run folder").required().type("RUN_A");
  command.option("run_b", options->b, "Another run folder").required().type("RUN_B");
  command.runs([options] { print(bisect(options->a, options->b)); });
}

}  // namespace tessera
