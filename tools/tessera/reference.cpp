#include <iostream>
#include <memory>

#include "tools/config/find.h"
#include "tools/tessera/commands.h"
#include "tools/tessera/train_options.h"
#include "tools/train/reference.h"

namespace tessera {

void add_reference(Command& app) {
  Command command = app.subcommand(
      "reference", "Store the answers' log-probabilities by the model that a run starts from.");
  const auto options = std::make_shared<TrainOptions>();
  options->add_to(command);
  command.runs([options] {
    for (const auto& file :
         write_references(find_config(options->config, options->all_overrides()))) {
      std::cout << "wrote " << file.string() << std::endl;
    }
  });
}

}  // namespace tessera
