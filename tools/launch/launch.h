// tessera launch: starts the ranks of a run, and starts them again when one dies.
//
// Ranks that own a GPU each are started here, and find each other by TCP (sharding/comm/tcp/tcp.h). mpirun
// starts the others, and those of several machines.
#pragma once

#include <string>
#include <vector>

#include "tools/launch/restarts.h"

namespace tessera {

/// The arguments of `tessera train`.
struct TrainArguments {
  std::string config;
  std::vector<std::string> overrides;
};

struct LaunchOptions {
  int ranks = 1;
  /// A run that fails without progress goes on with fewer ranks, down to this number; 0: it does not.
  int min_ranks = 0;
  RestartLimits limits;
  TrainArguments train;
  /// The words of the person's command before the file's name: Launch::command.
  std::string command;
  /// Options of mpirun, such as "--hostfile hosts". Then mpirun starts the ranks.
  std::vector<std::string> mpirun;
};

/// Runs `tessera train` on ranks that are processes, and returns the status of the run. A restart
/// continues from the newest checkpoint of the run. It is a line of the console, of log.txt, and an
/// event in metrics.jsonl.
///
/// The first SIGINT, SIGTERM or SIGUSR1 asks all ranks to stop after their step, with a checkpoint. A second
/// SIGINT or SIGTERM ends them at once. No process stays behind, also if this one is killed.
///
/// Raises Error if the configuration does not suit the ranks, or if mpirun is needed and
/// missing.
int launch(const LaunchOptions& options);

/// The ranks of `--ranks auto`: the GPUs of this machine. Raises Error if there are none.
int ranks_of_machine();

}  // namespace tessera
