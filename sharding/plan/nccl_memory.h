// The memory that NCCL's buffers take on a GPU: a bound, by a closed formula.
//
// NCCL allocates by itself, outside of the allocator's accounts, when communicators first use a connection.
// All communicators of a run are split off from one and share its connections (comm/nccl/job.h). On a
// channel a connection to another rank has a buffer for each protocol: LL 512 KiB, LL128 4.69 MiB, Simple
// 4 MiB. All but those that a link to another machine keeps on the host lie on the GPU, rounded up to 2 MiB:
//
//   neighbour on the machine          10 MiB for the data received, 2 MiB for the other way
//   neighbour on another machine      10 MiB each way
//   NVLink SHARP                       2 MiB for each rank of the group on the machine
//
// A ring or a tree has at most two neighbours on a channel. Messages (sums in the tree of
// kernels/tree_reduce/op.h, all_to_all, shift) have connections of their own, to all ranks. Source: NCCL 2.30
// (src/init.cc, computeBuffSizes; src/transport/p2p.cc, net.cc and nvls.cc).
//
// Windows (comm/nccl/window.h) are rounded up to 2 MiB. A communicator that has any takes 1 MiB for each of its
// ranks on the machine, rounded up, and 2 MiB for the flags of copy engines. Source: NCCL 2.28.9
// (src/allocator.cc, ncclMemAlloc; src/sym_kernels.cc, ncclSymkInitOnce; src/ce_coll.cc, ncclCeInit).
#pragma once

#include <cstdint>

#include "sharding/plan/mesh.h"

namespace tessera {

struct NcclUse {
  /// Channels of a communicator: WorldOptions::nccl_ctas.
  int ctas = 1;
  /// 0: all ranks are on one machine.
  int ranks_per_machine = 0;
  /// Whether ranks send messages.
  bool messages = false;
  /// Windows of a rank.
  int windows = 0;
};

/// Bytes on one GPU at most, for communicators along any axes of the mesh. 0 for one rank. It holds unless
/// variables of the environment change NCCL's buffers (NCCL_BUFFSIZE).
std::int64_t most_nccl_bytes(const Mesh& mesh, const NcclUse& use);

}  // namespace tessera
