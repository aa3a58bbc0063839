#include "tools/serve/serve.h"

#include <memory>

#include "tools/tessera/commands.h"
#include "tools/tessera/model_options.h"

namespace tessera {

void add_serve(Command& app) {
  Command command = app.subcommand("serve", "Serve a model to programs that speak OpenAI's API.");
  const auto options = std::make_shared<ServeOptions>();
  add_model_options(command, *options);
  command.option("--port", options->port, "0: any free port").required();
  command
      .option("--host", options->host,
              "The address to listen on; others than this machine's own "
              "loopback let other machines in")
      .type("ADDRESS")
      .shows_default();
  command.option("--batch", options->batch, "The most texts to continue at the same time")
      .positive()
      .shows_default();
  command.option("--queue", options->queue, "The most texts that wait for a place among them")
      .positive()
      .shows_default();
  command.runs([options] { serve(*options); });
}

}  // namespace tessera
