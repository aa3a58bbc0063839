#include "tools/config/reference.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "tools/tessera/commands.h"

namespace tessera {

void add_config_reference(CLI::App& app) {
  app.add_subcommand("config-reference", "Print docs/configuration.md: every key of a run's file.")
      ->callback([] { std::cout << configuration_reference() << std::flush; });
}

}  // namespace tessera
