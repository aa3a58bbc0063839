#include "tools/plan/plan.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "tools/config/parse.h"
#include "tools/tessera/commands.h"

namespace tessera {

void add_plan(CLI::App& app) {
  struct Options {
    std::string config;
    std::vector<std::string> overrides;
    PlanOptions plan;
  };
  CLI::App* command =
      app.add_subcommand("plan", "Predict memory and traffic of any number of ranks.");
  const auto options = std::make_shared<Options>();
  command->add_option("config", options->config, "The configuration; see docs/configuration.md")
      ->required()
      ->type_name("CONFIG.yaml");
  command->add_option("overrides", options->overrides, "Keys to set after the file")
      ->type_name("key.path=value");
  command->add_option("--ranks", options->plan.ranks, "Ranks; runtime.ranks if left out")
      ->check(CLI::PositiveNumber);
  command->add_option("--nodes", options->plan.nodes, "Machines that the ranks are spread over")
      ->check(CLI::PositiveNumber);
  command->add_flag("--partition", options->plan.partition,
                    "Also print the elements that each rank owns");
  command->callback([options] {
    std::cout << plan(load_config(options->config, options->overrides), options->plan)
              << std::flush;
  });
}

}  // namespace tessera
