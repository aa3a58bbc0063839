#include "tools/selftest/selftest.h"

#include <iostream>
#include <memory>

#include "tools/program/command_line.h"
#include "tools/tessera/commands.h"

namespace tessera {

void add_selftest(Command& app) {
  Command command = app.subcommand(
      "selftest", "Train a tiny model in all ways, in a few seconds, and compare the bits.");
  const auto options = std::make_shared<SelftestOptions>();
  command.option("--ranks", options->ranks, "Ranks: 2 (the default), 4, 8, ...");
  command.option("--device", options->device, "As runtime.device; auto by default");
  command.runs([options] {
    options->program = std::filesystem::read_symlink("/proc/self/exe");
    const auto print = [](std::string_view line) { std::cout << line << std::endl; };
    if (selftest(*options, print) > 0) throw ExitStatus{1};
  });
}

}  // namespace tessera
