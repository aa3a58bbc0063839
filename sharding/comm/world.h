// run_world: one program for ranks that are threads and ranks that are processes.
//
//   program --ranks 4             four threads of this process
//   mpirun -np 4 program          four processes, each of which runs the body once
//   torchrun ... program          the same, on GPUs and without MPI (tcp/tcp.h)
//
// In each case, ranks that own a GPU each may let NCCL move the tensors.
#pragma once

#include <exception>
#include <functional>

#include "sharding/comm/communicator.h"
#include "sharding/comm/options.h"

namespace tessera {

/// Raised by run_world in processes that have nothing to report about a failure, because one other
/// process raises Error with it. A program then ends with 1 and prints nothing.
class FailedElsewhere : public std::exception {
 public:
  const char* what() const noexcept override { return "the run has failed on another rank"; }
};

/// Raises FailedElsewhere, 30 seconds late. A launcher ends all processes when the first one exits
/// with an error. That must be the one that reports the failure, however busy its machine is.
[[noreturn]] void exit_quietly();

/// Whether this build can exchange tensors between processes by MPI.
bool built_with_mpi();

/// The ranks that run_world will start: the launcher's number, or options.ranks, or 1. Raises Error
/// as run_world does where a launcher has started this process and it cannot find the others.
int planned_ranks(const WorldOptions& options);

/// Runs `body` in this process, before run_world. Where mpirun has started several processes and
/// all find the same Error, rank 0 raises it and the others exit quietly.
void check_once(const std::function<void()>& body);

/// Runs body(communicator) on every rank, inside a RankContext of its own, and returns when all
/// have ended. If a rank raises, the others are aborted where they wait. The failure that came
/// first ("rank 1: out of memory") is raised once: as Error here, or where ranks are processes as
/// Error in one of them and FailedElsewhere in the others. After that a process can only end:
/// mpirun ends those that remain. Under mpirun, run_world runs once per process.
///
/// Raises Error in a process that a launcher has started and that finds no other processes; see
/// launcher.h.
void run_world(const WorldOptions& options, const std::function<void(Communicator&)>& body);

}  // namespace tessera
