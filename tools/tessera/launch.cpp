#include "tools/launch/launch.h"

#include <fmt/format.h>

#include <charconv>
#include <memory>

#include "runtime/check.h"
#include "tools/program/command_line.h"
#include "tools/program/process.h"
#include "tools/tessera/commands.h"
#include "tools/tessera/train_options.h"

namespace tessera {
namespace {

struct Options {
  std::string ranks;
  LaunchOptions launch;
  std::string mpirun;
  std::vector<std::string> command;
};

int number_of_ranks(const std::string& text) {
  if (text == "auto") return ranks_of_machine();
  int ranks = 0;
  const char* const end = text.data() + text.size();
  const auto [behind, error] = std::from_chars(text.data(), end, ranks);
  check(error == std::errc() && behind == end && ranks >= 1,
        "--ranks is '{}'; expected a number from 1 on, or auto", text);
  return ranks;
}

TrainArguments train_arguments(const std::vector<std::string>& command) {
  check(!command.empty() && command[0] == "train",
        "launch runs train: write 'tessera launch --ranks N -- train CONFIG'");
  Command arguments("tessera launch ... -- train", "");
  TrainOptions train;
  train.add_to(arguments);
  try {
    arguments.parse(std::span(command).subspan(1));
  } catch (const UsageError& error) {
    fail("launch ... -- train: {}", error.what());
  }
  check(train.ranks == 0, "leave the number of ranks to launch: --ranks before the --");
  return {.config = train.config, .overrides = train.all_overrides()};
}

}  // namespace

void add_launch(Command& app) {
  Command command =
      app.subcommand("launch", "Train on processes, and restart when one of them dies.");
  const auto options = std::make_shared<Options>();
  command.option("--ranks", options->ranks, "Processes; auto: one for each GPU")
      .required()
      .type("N|auto");
  LaunchOptions& launch_options = options->launch;
  command
      .option("--max-restarts", launch_options.limits.most,
              "Restarts of the whole run; 3 by default")
      .not_negative();
  command
      .option("--min-ranks", launch_options.min_ranks,
              "Go on with fewer ranks, at least so many, after two failures without progress")
      .positive();
  command
      .option("--backoff", launch_options.limits.seconds,
              "Seconds before the first restart, 1 by default; they double each time")
      .range(0.0, 3600.0);
  command.option("--mpirun-options", options->mpirun,
                 "More options of mpirun in one word, such as '--hostfile hosts'");
  command.option("command", options->command, "After --: the command of tessera")
      .required()
      .type("-- train CONFIG [key.path=value...]");
  command.runs([options] {
    LaunchOptions& launch_options = options->launch;
    launch_options.train = train_arguments(options->command);
    launch_options.ranks = number_of_ranks(options->ranks);
    launch_options.command = fmt::format("tessera launch --ranks {} -- train", options->ranks);
    launch_options.mpirun = split_words(options->mpirun);
    outlive_closed_pipes();
    if (const int status = launch(launch_options); status != 0) throw ExitStatus{status};
  });
}

}  // namespace tessera
