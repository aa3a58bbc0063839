// The options of the world that a configuration's ranks live in.
#pragma once

#include "sharding/comm/options.h"
#include "tools/config/config.h"

namespace tessera {

/// Ranks, devices, threads and communication as the keys say. The kernels are chosen on each rank,
/// by choose_kernels (tools/config/kernel_options.h).
WorldOptions world_options(const Config& config);

}  // namespace tessera
