// The commands of ranks that are processes of this machine, without MPI.
#pragma once

#include <string>
#include <vector>

namespace tessera {

/// One command for each rank: `command` with the variables that torchrun sets (sharding/comm/launcher.h),
/// on a port that no program listens on now. Raises Error if the machine has no port left.
std::vector<std::vector<std::string>> rank_commands(const std::vector<std::string>& command,
                                                    int ranks);

/// Starts this program again with the same arguments, as so many ranks, and waits until all have ended or
/// one has failed. Then the others are ended. Returns the status of the rank that failed, or 0.
int run_as_ranks(int count, char** arguments, int ranks);

}  // namespace tessera
