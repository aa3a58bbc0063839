#include <memory>

#include "sharding/comm/world.h"
#include "tools/config/find.h"
#include "tools/launch/launch.h"
#include "tools/program/command_line.h"
#include "tools/program/process.h"
#include "tools/program/stop.h"
#include "tools/tessera/commands.h"
#include "tools/tessera/train_options.h"
#include "tools/train/trainer.h"
#include "tools/train/world_options.h"

namespace tessera {
namespace {

/// The run as processes, without restarts.
void train_on_processes(const Config& config, const TrainOptions& options) {
  const int status = launch({.ranks = static_cast<int>(config.runtime.ranks),
                             .limits = {.most = 0},
                             .train = {options.config, options.all_overrides()},
                             .command = "tessera train"});
  if (status != 0) throw ExitStatus{status};
}

}  // namespace

void add_train(Command& app) {
  Command command = app.subcommand("train", "Train a model by a YAML file.");
  const auto options = std::make_shared<TrainOptions>();
  options->add_to(command);
  command.runs([options] {
    remember_stop_signals();
    outlive_closed_pipes();
    const Config config = find_config(options->config, options->all_overrides());
    if (are_processes(world_options(config))) return train_on_processes(config, *options);
    train(config, options->restarted);
  });
}

}  // namespace tessera
