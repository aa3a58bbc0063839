// Ranks that are processes, started by mpirun: on one machine or many.
//
// The contract is that of communicator.h. Results and bytes sent are those of ranks that are
// threads, bit for bit. MPI only carries bytes. Reductions are messages followed by the tree of
// kernels/tree_reduce/op.h, never MPI's own.
//
//   all_gather      every rank sends its part to every other, which receives it in place
//   reduce_scatter  every rank sends every other its part of `whole`, and sums its own part; with
//                   several nodes inside a node first (tree_exchange.h)
//   all_reduce      the same over shares of the elements, then an all_gather of the sums
//   reduce          the same, then the sums go to the root
//   broadcast       the root sends everything to every other rank. (A scatter and an all_gather
//                   would send 2/N of that from the root, but count other bytes than threads do.)
//   all_to_all      every rank sends every other its part
//   shift           every rank sends one other everything
//
// Tensors on GPUs travel through pinned host memory, and the host forms the sums: correct, and slow.
// NCCL needs this communicator to start, and it serves GPUs without NCCL.
//
// To compare a call, ranks exchange 16 bytes before it; these are not counted as sent.
#pragma once

#include <functional>

#include "sharding/comm/communicator.h"

namespace tessera {

/// Bytes of the buffer into which a communicator receives sources of sums. It is allocated with the
/// first reduction and charged to `workspace`. Its size does not depend on the tensors' sizes.
inline constexpr std::int64_t kMpiStagingBytes = 2 << 20;

/// run_world in a process that a launcher of MPI started: runs body(communicator) once, as one of
/// the job's ranks, and returns when the body has ended on all. `options.ranks` is the launcher's
/// number of processes, or 0 if it did not say. Raises Error unless MPI finds as many.
void run_mpi_rank(const WorldOptions& options, const std::function<void(Communicator&)>& body);

}  // namespace tessera
