// Ranks that are threads of one process: no launcher is needed.
//
// This communicator serves laptops, tests and several ranks on one device. A rank reads the other
// ranks' memory directly. On GPUs a call is queued like a kernel: streams wait for each other. The
// host waits until all ranks have made the call, and for no device. All ranks are on one machine,
// which is one node. So sums are formed in one stage (tree_exchange.h has two, for several nodes).
#pragma once

#include <functional>

#include "runtime/context.h"
#include "sharding/comm/communicator.h"

namespace tessera {

/// Runs body(communicator) on one thread per rank, each with a RankContext of its own, and returns
/// when all have ended. If a rank raises, the others are aborted where they wait, and Error is
/// raised here with the number and message of the rank that failed first. The communicator
/// is not chosen here; see run_world. But ranks of NCCL do not link their GPUs.
void run_ranks(const WorldOptions& options, const std::function<void(Communicator&)>& body);

}  // namespace tessera
