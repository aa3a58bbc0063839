#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "tools/config/parse.h"
#include "tools/program/stop.h"
#include "tools/tessera/commands.h"
#include "tools/train/trainer.h"

namespace tessera {

void add_train(CLI::App& app) {
  struct Options {
    std::string config;
    std::vector<std::string> overrides;
    int ranks = 0;
    bool resume = false;
  };
  CLI::App* command = app.add_subcommand("train", "Train a model by a YAML file.");
  const auto options = std::make_shared<Options>();
  command->add_option("config", options->config, "The configuration; see docs/configuration.md")
      ->required()
      ->type_name("CONFIG.yaml");
  command->add_option("overrides", options->overrides, "Keys to set after the file")
      ->type_name("key.path=value");
  command->add_option("--ranks", options->ranks, "Ranks as threads; sets runtime.ranks")
      ->check(CLI::PositiveNumber);
  command->add_flag("--resume", options->resume,
                    "Continue from the newest checkpoint in train.dir; sets train.resume=auto");
  command->callback([options] {
    if (options->resume) options->overrides.push_back("train.resume=auto");
    if (options->ranks > 0) {
      options->overrides.push_back("runtime.ranks=" + std::to_string(options->ranks));
    }
    remember_stop_signals();
    train(load_config(options->config, options->overrides));
  });
}

}  // namespace tessera
