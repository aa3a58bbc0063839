// Threads that are bound to cores (WorldOptions::pin): which rank has which cores.
#pragma once

#include <functional>
#include <vector>

#include "sharding/comm/communicator.h"

namespace tessera {

/// A rank's wish: the cores that it may run on, and its number of threads.
struct CoreWish {
  std::vector<int> allowed;
  int threads = 1;
};

/// A core for each thread of rank `rank` among the ranks of a machine. In the order of ranks, each
/// takes the first of its cores that no rank before it has taken. So ranks that may run on the same
/// cores get neighbouring runs of them, and ranks that a launcher has bound keep their own. Raises
/// Error if too few are left.
std::vector<int> share_out_cores(const std::vector<CoreWish>& ranks, int rank);

/// Binds the workers of the calling rank to cores of their own, and returns the core of its calling
/// thread. The nodes of `world` are the machines. A collective. Raises Error if the rank is not on the
/// CPU.
int bind_workers_of_rank(Communicator& world);

/// body(world), with all threads of the rank bound if `pin`.
void run_pinned(bool pin, Communicator& world, const std::function<void(Communicator&)>& body);

}  // namespace tessera
