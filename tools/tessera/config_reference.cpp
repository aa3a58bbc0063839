#include "tools/config/reference.h"

#include <iostream>

#include "tools/tessera/commands.h"

namespace tessera {

void add_config_reference(Command& app) {
  app.subcommand("config-reference", "Print docs/configuration.md: every key of a run's file.")
      .runs([] { std::cout << configuration_reference() << std::flush; });
}

}  // namespace tessera
