// WorldOptions: how many ranks to run, on which devices, and how they exchange tensors.
#pragma once

#include <chrono>
#include <cstdint>

#include "runtime/device.h"
#include "runtime/enum_names.h"
#include "sharding/comm/deadline.h"

namespace tessera {

/// How ranks exchange tensors. `automatic` takes NCCL if the build has NCCL and ranks are processes on
/// GPUs. Otherwise threads read each other's memory, and processes use MPI.
enum class CommunicatorKind { automatic, threads, mpi, nccl };
template <>
inline constexpr EnumNames<CommunicatorKind> kEnumNames<CommunicatorKind> = {
    "communicator", {"auto", "threads", "mpi", "nccl"}};

/// When ranks compare their calls one by one; see communicator.h, "Agreement". Threads of one
/// process always do, because it costs them nothing.
enum class CheckCollectives { first_steps, always };
template <>
inline constexpr EnumNames<CheckCollectives> kEnumNames<CheckCollectives> = {
    "check of collectives", {"first_steps", "always"}};

/// The default of WorldOptions::nccl_ctas: as many as NCCL takes by itself for NVLink SHARP on Hopper
/// (NVLS_NCHANNELS_SM90 in its transport/nvls.cc).
inline constexpr int kNcclCtas = 16;

struct WorldOptions {
  /// 0: the launcher's number of ranks, or 1 without a launcher. Under a launcher any other number
  /// than the launcher's raises Error.
  int ranks = 0;
  /// The device of the first rank of each machine. If it is a GPU, the next ranks get the next
  /// GPUs, and after the last GPU the first one again.
  Device device;
  /// Threads per rank; 0: the cores of a machine shared out among its ranks, at least one each.
  int threads = 0;
  /// Bind every thread of a rank to a core of its own (pin.h): for ranks on the CPU.
  bool pin = false;
  std::uint64_t seed = 0;
  /// How long a rank waits for the others before it gives up.
  Deadline deadline = std::chrono::minutes(10);
  /// How long a process leaves the report of a failure to another process; see fail_late.
  std::chrono::milliseconds report_delay = std::chrono::seconds(30);
  CommunicatorKind communicator = CommunicatorKind::automatic;
  /// NCCL too forms sums in the tree of kernels/tree_reduce/op.h. The others always do.
  bool deterministic = false;
  CheckCollectives check_collectives = CheckCollectives::first_steps;
  /// Thread blocks (CTAs) of a collective of NCCL at most. Each holds a multiprocessor, and products are
  /// told the number of the others. Each has a channel with buffers (plan/nccl_memory.h).
  int nccl_ctas = kNcclCtas;
  /// Buffers of NCCL's collectives are memory that all ranks register (nccl/window.h). Raises Error for ranks
  /// that do not exchange tensors by NCCL.
  bool nccl_windows = false;
  /// 0: ranks on one machine form a node. Otherwise, for tests, this many consecutive ranks do.
  int ranks_per_node = 0;
};

}  // namespace tessera
