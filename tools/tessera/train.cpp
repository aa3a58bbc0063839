#include <memory>

#include "tools/config/find.h"
#include "tools/program/process.h"
#include "tools/program/stop.h"
#include "tools/tessera/commands.h"
#include "tools/tessera/train_options.h"
#include "tools/train/trainer.h"

namespace tessera {

void add_train(Command& app) {
  Command command = app.subcommand("train", "Train a model by a YAML file.");
  const auto options = std::make_shared<TrainOptions>();
  options->add_to(command);
  command.runs([options] {
    remember_stop_signals();
    outlive_closed_pipes();
    train(find_config(options->config, options->all_overrides()), options->restarted);
  });
}

}  // namespace tessera
