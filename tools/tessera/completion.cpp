#include "tools/program/completion.h"

#include <iostream>
#include <memory>

#include "tools/config/keys.h"
#include "tools/tessera/commands.h"

namespace tessera {

void add_completion(Command& app) {
  Command command = app.subcommand("completion", "Print a script that completes words in a shell.");
  const auto shell = std::make_shared<std::string>();
  command.option("shell", *shell, "Save it where the shell looks, as cmake --install does")
      .required()
      .type("bash|zsh|fish")
      .one_of({"bash", "zsh", "fish"});
  command.runs([shell, name = app.name(), commands = app.words()] {
    Config config;
    std::vector<std::string> keys;
    for (const Key& key : keys_of(config)) keys.push_back(key.name);
    std::cout << completion_script(*shell, name, commands, keys) << std::flush;
  });
}

}  // namespace tessera
