// The options of `tessera train`, which `tessera launch` reads too.
#pragma once

#include <string>
#include <vector>

namespace tessera {

struct TrainOptions {
  std::string config;
  std::vector<std::string> overrides;
  int ranks = 0;
  bool resume = false;
  std::string restarted;

  /// Declares them. They must outlive the parsing.
  void add_to(Command& command) {
    command
        .option("config", config,
                "A file of keys (docs/configuration.md), or a preset such as gpt2")
        .required()
        .type("CONFIG");
    command.option("overrides", overrides, "Keys to set after the file").type("key.path=value");
    command.option("--ranks", ranks, "Ranks: threads, or processes on GPUs; sets runtime.ranks")
        .positive();
    command.flag("--resume", resume,
                 "Continue from the newest checkpoint in train.dir; sets train.resume=auto");
    command.option("--restarted", restarted,
                   "A launcher's reason to start the run again, for its log");
  }

  /// The overrides, those of the other options among them.
  std::vector<std::string> all_overrides() const {
    std::vector<std::string> all = overrides;
    if (resume) all.push_back("train.resume=auto");
    if (ranks > 0) all.push_back("runtime.ranks=" + std::to_string(ranks));
    return all;
  }
};

}  // namespace tessera
