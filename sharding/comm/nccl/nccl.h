// Ranks that own a GPU each and exchange tensors by NVIDIA's NCCL.
//
// NCCL moves them over NVLink within a machine, over the network between machines. The contract is
// that of communicator.h. NCCL has no agreement, no deadlines and no reasons for failures. Another
// communicator, `control`, keeps those promises: on it the ranks compare their calls, on the host,
// and report failures. NCCL moves the tensors:
//
//                   by default            deterministic
//   all_gather      ncclAllGather         the same
//   broadcast       ncclBroadcast         the same
//   all_to_all      ncclSend, ncclRecv    the same
//   shift           ncclSend, ncclRecv    the same
//   reduce_scatter  ncclReduceScatter     parts are sent to their owners, who sum them in the tree;
//                                         with several nodes inside a node first (tree_exchange.h)
//   all_reduce      ncclAllReduce         the same over shares, then ncclAllGather of the sums; if
//                                         shares are not equal, the sums are sent to all
//   reduce          ncclReduce            the same over shares, then the sums are sent to the root
//   barrier         ncclAllReduce of one number
//
// By default NCCL chooses the order of additions, by the number of ranks, the size and the network,
// and rounds 16-bit sums at every hop. `deterministic` gives the bits that ranks that are threads
// get, on any machine. Sums of 16 bits into f32 always take the second way. Maxima always take the
// first, and their bits do not depend on it: f32 that are not negative order as unsigned integers,
// with NaN above infinity.
//
// With `windows`, buffers (Communicator::buffer) are memory that all ranks of the communicator have registered
// (window.h). NCCL gathers into it with copy engines. Where a rank's GPU reaches the memory of all others, a sum
// in the tree has no messages: between two barriers every rank adds up its share, straight from all ranks'
// buffers.
//
// `bytes_sent` follows the formulas of docs/communicators.md. NCCL's rings send as many for
// all_gather, reduce_scatter and all_reduce. Its other algorithms (trees, NVLink SHARP) and its
// `reduce` and `broadcast` send other amounts, and NCCL does not report them.
#pragma once

#include <chrono>
#include <functional>

#include "sharding/comm/communicator.h"
#include "sharding/comm/deadline.h"

namespace tessera {

struct NcclOptions {
  bool deterministic = false;
  /// How long a rank waits for the others to reach NCCL, and for a queued call to end on the GPU,
  /// before it gives up.
  Deadline deadline = std::chrono::minutes(10);
  CheckCollectives check_collectives = CheckCollectives::always;
  /// Most bytes of the buffer that receives the sources of sums, on each rank: charged to
  /// `workspace` for as long as a reduction runs.
  std::int64_t staging_bytes = 32 << 20;
  /// As WorldOptions::nccl_ctas and nccl_windows.
  int ctas = kNcclCtas;
  bool windows = false;
};

/// Runs body(communicator) on this rank of `control`'s, with NCCL among the same ranks. A
/// collective over `control`. The current context's device must be a GPU that no other rank has.
void run_with_nccl(Communicator& control, const NcclOptions& options,
                   const std::function<void(Communicator&)>& body);

}  // namespace tessera
