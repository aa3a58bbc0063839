// The command that continues a stopped run.
#pragma once

#include <string>

#include "sharding/comm/launcher.h"
#include "tools/config/config.h"

namespace tessera {

/// "tessera train runs/a/config.yaml", for a shell in this working directory. The run folder's
/// config.yaml has all settings, the number of ranks too. Under a launcher it begins with "mpirun -np N", or
/// "torchrun ... --no-python" for torchrun's own options. For ranks that tessera has started it is the command
/// that a person typed.
/// It ends with "--resume" if train.resume is not `auto`.
std::string command_to_continue(const Config& config, int ranks, const Launch& launch);

}  // namespace tessera
