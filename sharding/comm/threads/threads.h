// Ranks that are threads of one process: the communicator that needs no launcher, for laptops,
// tests and several ranks on one device. A rank reads what it needs straight from the others'
// memory. On GPUs a call is queued like a kernel: streams wait for each other, the host waits for
// the other ranks to make the call and for no device.
#pragma once

#include <chrono>
#include <functional>

#include "runtime/context.h"
#include "sharding/comm/communicator.h"

namespace tessera {

struct ThreadRanksOptions {
  int ranks = 1;
  /// A GPU is rank 0's; the next ranks have the next GPUs, and then the first ones again.
  Device device;
  /// Threads per rank; 0: the machine's cores shared out evenly, at least one each.
  int threads = 0;
  std::uint64_t seed = 0;
  /// How long a rank waits for the others before it gives up.
  std::chrono::milliseconds deadline = std::chrono::minutes(10);
};

/// Runs body(communicator) on one thread per rank, each with a RankContext of its own, and returns
/// when all have ended. If a rank raises, the others are aborted where they wait, and Error is
/// raised here with the number and message of the rank that failed first.
void run_ranks(const ThreadRanksOptions& options, const std::function<void(Communicator&)>& body);

}  // namespace tessera
