// run_world: one program for ranks that are threads and ranks that are processes.
//
//   program --ranks 4             four threads of this process
//   mpirun -np 4 program          four processes, each of which runs the body once
//
// In either case ranks that own a GPU each may leave moving tensors to NCCL.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <string_view>

#include "runtime/enum_names.h"
#include "sharding/comm/communicator.h"

namespace tessera {

/// By what ranks exchange tensors. `automatic`: threads read each other's memory; processes use
/// NCCL if they are on GPUs and the build has it, and MPI otherwise.
enum class CommunicatorKind { automatic, threads, mpi, nccl };

template <>
inline constexpr EnumNames<CommunicatorKind> kEnumNames<CommunicatorKind> = {
    "communicator", {"auto", "threads", "mpi", "nccl"}};

/// Raises Error that lists the names.
inline CommunicatorKind communicator_from_name(std::string_view name) {
  return enum_from_name<CommunicatorKind>(name);
}

struct WorldOptions {
  /// 0: what mpirun says, or 1. Under mpirun any other number than its own raises Error.
  int ranks = 0;
  /// A GPU is the first rank's on each machine; the next ranks have the next GPUs, and then the
  /// first ones again.
  Device device;
  /// Threads per rank; 0: the cores of a machine shared out among its ranks, at least one each.
  int threads = 0;
  std::uint64_t seed = 0;
  /// How long a rank waits for the others before it gives up.
  std::chrono::milliseconds deadline = std::chrono::minutes(10);
  CommunicatorKind communicator = CommunicatorKind::automatic;
  /// NCCL too forms sums in the tree of kernels/tree_reduce/op.h, as the others always do.
  bool deterministic = false;
};

/// Raised by run_world in processes that have nothing to say about a failure, because one other
/// process raises Error with it. A program ends with 1 then, in silence.
class FailedElsewhere : public std::exception {
 public:
  const char* what() const noexcept override { return "the run has failed on another rank"; }
};

/// Raises FailedElsewhere, two seconds late: a launcher ends all processes when the first one exits
/// with an error, and that must be the one that has something to say.
[[noreturn]] void fail_in_silence();

/// The ranks that run_world will start: those of mpirun, or options.ranks, or 1.
int planned_ranks(const WorldOptions& options);

/// Runs `body` in this process, before run_world. Where mpirun has started several processes and
/// all find the same Error, only rank 0 reports it: the others wait two seconds before they raise,
/// and by then mpirun has ended them.
void check_once(const std::function<void()>& body);

/// Runs body(communicator) on every rank, inside a RankContext of its own, and returns when all
/// have ended. If a rank raises, the others are aborted where they wait. The failure that came
/// first ("rank 1: out of memory") is raised once: as Error here, or where ranks are processes as
/// Error in one of them and FailedElsewhere in the others. Then there is nothing left to do but to
/// end the process: mpirun ends those that remain. Under mpirun, run_world runs once per process.
void run_world(const WorldOptions& options, const std::function<void(Communicator&)>& body);

}  // namespace tessera
