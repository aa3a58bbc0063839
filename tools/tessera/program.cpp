#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <iostream>
#include <vector>

#include "sharding/comm/world.h"
#include "tools/tessera/commands.h"

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

}  // namespace

int run_program(std::span<const std::string> arguments) {
  CLI::App app("Tessera: trains transformer language models and runs them.", "tessera");
  app.require_subcommand(1);
  add_commands(app);
  try {
    // CLI11 takes the last argument first.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    return app.exit(error, std::cout, std::cerr) == 0 ? 0 : kWrongUsage;  // --help is no error
  } catch (const FailedElsewhere&) {
    return kFailed;
  } catch (const std::exception& error) {
    std::cerr << "tessera: " << on_one_line(error.what()) << "\n";
    return kFailed;
  }
  return 0;
}

}  // namespace tessera
