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
    std::vector<int> ranks;
    PlanOptions plan;
  };
  constexpr int kMostRanks = 1 << 20;
  CLI::App* command =
      app.add_subcommand("plan", "Predict memory and traffic of any number of ranks.");
  const auto options = std::make_shared<Options>();
  command->add_option("config", options->config, "The configuration; see docs/configuration.md")
      ->required()
      ->type_name("CONFIG.yaml");
  command->add_option("overrides", options->overrides, "Keys to set after the file")
      ->type_name("key.path=value");
  command
      ->add_option("--ranks", options->ranks,
                   "Numbers of ranks, separated by commas; runtime.ranks by default")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, kMostRanks));
  command->add_option("--nodes", options->plan.nodes, "Machines that the ranks are spread over")
      ->check(CLI::Range(1, kMostRanks));
  command->add_flag("--partition", options->plan.partition,
                    "Also print the elements that each rank owns");
  command->callback([options] {
    const Config config = load_config(options->config, options->overrides);
    if (options->ranks.empty()) options->ranks = {0};
    for (const int ranks : options->ranks) {
      options->plan.ranks = ranks;
      std::cout << plan(config, options->plan) << (ranks == options->ranks.back() ? "" : "\n")
                << std::flush;
    }
  });
}

}  // namespace tessera
