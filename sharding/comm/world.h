// run_world: one program for ranks that are threads and ranks that are processes.
//
//   program --ranks 4             four threads of this process, which read each other's memory
//   mpirun -np 4 program          four processes, each of which runs the body once
//   torchrun ... program          the same, on GPUs and without MPI (tcp/tcp.h)
//
// Processes that own a GPU each may let NCCL move the tensors. Threads may not: cudaMalloc on one GPU may
// wait for the kernels of the others that the process has linked to it, so a rank that allocates between
// another rank's launch of a collective and its own could wait for ever. `tessera` starts such ranks as
// processes by itself (tools/launch/launch.h).
#pragma once

#include <functional>
#include <string>

#include "sharding/comm/communicator.h"
#include "sharding/comm/options.h"

namespace tessera {

/// Raises Error for a failure that another process reports, after options.report_delay. A launcher
/// ends all processes when the first one exits with an error. That must be the one that reports the
/// failure, however busy its machine is. A process that is still there after the delay has no
/// launcher, or the other process is missing. So it reports the failure too.
[[noreturn]] void fail_late(const WorldOptions& options, const std::string& message);

/// Whether this build can exchange tensors between processes by MPI.
bool built_with_mpi();

/// Whether the ranks should be processes of this machine: no launcher has started this one, there are
/// several, each has a GPU, and NCCL is to move the tensors.
bool are_processes(const WorldOptions& options);

/// The ranks that run_world will start: the launcher's number, or options.ranks, or 1. Raises Error
/// as run_world does where a launcher has started this process and it cannot find the others.
int planned_ranks(const WorldOptions& options);

/// Runs `body` in this process, before run_world. Where a launcher has started several processes and
/// all find the same Error, rank 0 raises it at once and the others late.
void check_once(const WorldOptions& options, const std::function<void()>& body);

/// Runs body(communicator) on every rank, inside a RankContext of its own, and returns when all
/// have ended. If a rank raises, the others are aborted where they wait. The failure that came
/// first ("rank 1: out of memory") is raised once: as Error here, or where ranks are processes as
/// Error in one of them, and late in the others. After that a process can only end: mpirun ends those
/// that remain. Under mpirun, run_world runs once per process.
///
/// Raises Error in a process that a launcher has started and that finds no other processes; see
/// launcher.h.
void run_world(const WorldOptions& options, const std::function<void(Communicator&)>& body);

}  // namespace tessera
