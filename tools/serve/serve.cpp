#include "tools/serve/serve.h"

#include <fmt/format.h>

#include <iostream>

#include "runtime/check.h"
#include "sharding/comm/world.h"
#include "tools/program/process.h"
#include "tools/program/stop.h"

namespace tessera {
namespace {

std::string start_line(const ServeOptions& options, const Server& server,
                       const TransformerShape& shape) {
  const bool v6 = options.host.find(':') != options.host.npos;
  const std::string host = v6 ? "[" + options.host + "]" : options.host;
  return fmt::format("serving {} at http://{}:{} with {} rows of {} tokens", options.model.string(),
                     host, server.http().port(), options.batch, shape.context);
}

}  // namespace

void serve(const ServeOptions& options) {
  check(planned_ranks({.ranks = options.ranks}) == 1,
        "serve computes on one rank: start it without a launcher, and without --ranks");
  outlive_closed_pipes();
  Server server(options);
  if (!server.http().is_loopback()) {
    std::cerr << "warning: other machines can reach this server, and it asks for no password\n";
  }
  run_model(options, [&](LanguageModel& model) {
    server.run(model,
               [&] { std::cout << start_line(options, server, model.shape()) << std::endl; });
  });
  const TextBatch::Load load = server.batch().load();
  std::cout << fmt::format("stopped by {} after {} texts\n", signal_name(server.stop_signal()),
                           load.finished)
            << std::flush;
}

}  // namespace tessera
