// The commands of ranks that are processes of this machine, without MPI.
#pragma once

#include <string>
#include <vector>

namespace tessera {

/// One command for each rank: `command` with the variables that torchrun sets (sharding/comm/launcher.h),
/// on a port that no program listens on now. Raises Error if the machine has no port left.
std::vector<std::vector<std::string>> rank_commands(const std::vector<std::string>& command,
                                                    int ranks);

}  // namespace tessera
