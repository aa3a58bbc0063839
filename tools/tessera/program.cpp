#include <iostream>

#include "tools/program/command_line.h"
#include "tools/tessera/commands.h"

namespace tessera {
namespace {

void add_commands(Command& app) {
  add_prepare(app);
  add_train(app);
  add_reference(app);
  add_launch(app);
  add_selftest(app);
  add_encode(app);
  add_generate(app);
  add_score(app);
  add_serve(app);
  add_eval(app);
  add_export(app);
  add_checkpoint(app);
  add_plan(app);
  add_report(app);
  add_replay(app);
  add_bisect(app);
  add_config_reference(app);
  add_completion(app);
}

/// An override written as an option, as torchtitan takes them: "--optimizer.learning_rate=1e-3".
/// Empty without one.
std::string override_with_dashes(std::span<const std::string> arguments) {
  for (const std::string& argument : arguments) {
    const std::size_t dot = argument.find('.');
    // A value with dashes has a space before a dot: '--hostfile hosts.txt'.
    if (argument.starts_with("--") && dot < argument.find_first_of("= ")) return argument;
  }
  return {};
}

}  // namespace

int run_program(std::span<const std::string> arguments) {
  if (const std::string dashed = override_with_dashes(arguments); !dashed.empty()) {
    std::cerr << "tessera: write '" << dashed << "' without the dashes: '" << dashed.substr(2)
              << "'\n";
    return 2;
  }
  Command app("tessera", "Tessera: trains transformer language models and runs them.");
  add_commands(app);
  return run_command_line(app, arguments);
}

}  // namespace tessera
