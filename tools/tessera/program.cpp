#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <iostream>
#include <vector>

#include "runtime/check.h"
#include "sharding/comm/world.h"
#include "tools/tessera/commands.h"
#include "tools/train/stop.h"

namespace tessera {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

void add_commands(CLI::App& app) {
  add_prepare(app);
  add_train(app);
  add_generate(app);
  add_plan(app);
  add_config_reference(app);
}

std::string on_one_line(std::string message) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  return message;
}

/// An override written as an option, as torchtitan takes them: "--optimizer.learning_rate=1e-3".
/// Empty without one.
std::string override_with_dashes(std::span<const std::string> arguments) {
  for (const std::string& argument : arguments) {
    const std::size_t dot = argument.find('.');
    if (argument.starts_with("--") && dot < argument.find('=')) return argument;
  }
  return {};
}

int report(const std::string& message) {
  std::cerr << "tessera: " << on_one_line(message) << "\n";
  // The status of a process that a signal has ended, as shells report it.
  return stop_signal() != 0 ? 128 + stop_signal() : kFailed;
}

}  // namespace

int run_program(std::span<const std::string> arguments) {
  if (const std::string dashed = override_with_dashes(arguments); !dashed.empty()) {
    std::cerr << "tessera: write '" << dashed << "' without the dashes: '" << dashed.substr(2)
              << "'\n";
    return kWrongUsage;
  }
  CLI::App app("Tessera: trains transformer language models and runs them.", "tessera");
  app.require_subcommand(1);
  add_commands(app);
  try {
    // CLI11 takes the last argument first.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
    std::cout.flush();
    check(std::cout.good(), "standard output could not be written; is the disk full?");
  } catch (const CLI::ParseError& error) {
    return app.exit(error, std::cout, std::cerr) == 0 ? 0 : kWrongUsage;  // 0: --help
  } catch (const FailedElsewhere&) {
    return kFailed;
  } catch (const std::exception& error) {
    return report(error.what());
  }
  return 0;
}

}  // namespace tessera
