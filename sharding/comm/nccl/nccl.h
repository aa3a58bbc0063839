// Ranks that own a GPU each and talk through NVIDIA's NCCL: over NVLink within a machine, over the
// network between machines.
//
// The contract is that of communicator.h. NCCL knows no agreement, no deadlines and no reasons, so
// another communicator, `control`, keeps those promises: before a call is queued the ranks compare
// it there, on the host, and a rank that fails is heard of there. NCCL moves the tensors:
//
//                   by default            deterministic
//   all_gather      ncclAllGather         the same
//   broadcast       ncclBroadcast         the same
//   all_to_all      ncclSend, ncclRecv    the same
//   reduce_scatter  ncclReduceScatter     parts are sent to their owners, who sum them in the tree
//   all_reduce      ncclAllReduce         the same over shares, then the sums are sent to all
//   reduce          ncclReduce            the same over shares, then the sums are sent to the root
//   barrier         ncclAllReduce of one number
//
// By default NCCL chooses the order of additions, by the number of ranks, the size and the network,
// and rounds 16-bit sums at every hop. `deterministic` gives the bits that ranks that are threads
// get, on any machine. Maxima, which let NaN through, and sums of 16 bits into f32 always take the
// second way. Bytes are counted by the formulas of the second way, which for all but `reduce` and
// `broadcast` are what NCCL's rings send.
#pragma once

#include <chrono>
#include <functional>

#include "sharding/comm/communicator.h"

namespace tessera {

struct NcclOptions {
  bool deterministic = false;
  /// How long a rank waits for the others to come to NCCL before it gives up.
  std::chrono::milliseconds deadline = std::chrono::minutes(10);
  /// Where what is to be summed is received, at most, on each rank: charged to `workspace` for as
  /// long as a reduction runs.
  std::int64_t staging_bytes = 32 << 20;
};

/// Runs body(communicator) on this rank of `control`'s, with NCCL among the same ranks. A
/// collective over `control`. The current context's device must be a GPU that no other rank has.
void run_with_nccl(Communicator& control, const NcclOptions& options,
                   const std::function<void(Communicator&)>& body);

}  // namespace tessera
