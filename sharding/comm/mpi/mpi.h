// Ranks that are processes, started by mpirun: on one machine or many.
//
// The contract is that of communicator.h, and results and bytes sent are the same as of ranks that
// are threads, bit for bit. MPI carries bytes and nothing else: reductions are all-to-all messages
// followed by the tree of kernels/tree_reduce/op.h, never MPI's own.
//
//   all_gather      every rank sends its part to every other, which receives it in place
//   reduce_scatter  every rank sends every other its part of `whole`, and sums what it receives
//   all_reduce      the same over shares of the elements, then an all_gather of the sums
//   reduce          the same, then the sums go to the root
//   broadcast       the root sends everything to every other rank. (A scatter and an all_gather
//                   would send 2/N of that from the root, but count other bytes than threads do.)
//   all_to_all      every rank sends every other its part
//
// Tensors on GPUs go by way of pinned host memory, and sums are formed on the host: right, and
// slow. It is what NCCL is started with, and for where there is no NCCL.
//
// Before each call ranks exchange 16 bytes to compare it; these are not counted as sent.
#pragma once

#include <functional>

#include "sharding/comm/communicator.h"
#include "sharding/comm/world.h"

namespace tessera {

/// Where a communicator receives what it will sum: allocated with its first reduction, charged to
/// `workspace`, and as large whatever the size of tensors.
inline constexpr std::int64_t kMpiStagingBytes = 2 << 20;

/// run_world in a process that mpirun has started: runs body(communicator) once, as one of
/// options.ranks ranks, and returns when the body has ended on all.
void run_mpi_rank(const WorldOptions& options, const std::function<void(Communicator&)>& body);

}  // namespace tessera
