// Ranks that are processes without MPI: small messages by TCP, and tensors by
// NCCL.
//
// torchrun and its kind describe a run by the environment variables RANK,
// WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT. Rank 0 takes the port;
// the others connect to it. The communicator here carries everything but
// tensors: comparisons of calls, splits, aborts, barriers, and NCCL's id, which
// is a broadcast of 128 bytes. It starts NCCL (run_with_nccl) and refuses to
// move other tensors.
#pragma once

#include <functional>
#include <stdexcept>

#include "sharding/comm/communicator.h"
#include "sharding/comm/tcp/options.h"

namespace tessera {

/// A broadcast takes at most so many bytes.
inline constexpr std::size_t kLongestTcpBroadcast = 64 << 10;

/// A failure that another process reports.
class FailedElsewhere : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// run_world in a process that torchrun started: runs body(communicator) once,
/// as the rank `own`, and returns when the body has ended on all. Raises Error
/// in the process that reports a failure, and FailedElsewhere in the others.
void run_tcp_rank(const TcpRank& own, const WorldOptions& options,
                  const std::function<void(Communicator&)>& body);

}  // namespace tessera
