#include "sharding/comm/world.h"

#include <csignal>
#include <string>
#include <thread>

#include "runtime/backends.h"
#include "runtime/check.h"
#include "runtime/cuda/device.h"
#include "sharding/comm/call.h"
#include "sharding/comm/launcher.h"
#include "sharding/comm/tcp/tcp.h"
#include "sharding/comm/threads/threads.h"
#ifdef TESSERA_MPI
#include "sharding/comm/mpi/mpi.h"
#endif
#ifdef TESSERA_NCCL
#include "sharding/comm/nccl/nccl.h"
#endif

namespace tessera {
namespace {

/// A failure that every process finds by itself: the first one reports it at once.
[[noreturn]] void fail_once(const WorldOptions& options, const Launch& launch,
                            const std::string& message) {
  if (launch.process == 0) throw Error(message);
  fail_late(options, failure_of(launch.process, launch.processes, message));
}

#ifdef TESSERA_NCCL
constexpr bool kHasNccl = true;
#else
constexpr bool kHasNccl = false;
#endif

using Body = std::function<void(Communicator&)>;

/// Whether ranks that are threads (processes) leave moving tensors to NCCL.
bool exchanges_by_nccl(const WorldOptions& options, bool processes) {
  const CommunicatorKind kind = options.communicator;
  return kind == CommunicatorKind::nccl ||
         (processes && kind == CommunicatorKind::automatic && kHasNccl && !options.device.is_cpu());
}

/// Raises Error unless ranks that are threads (processes) can exchange tensors as asked for.
void check_kind(const WorldOptions& options, bool processes) {
  const CommunicatorKind kind = options.communicator;
  const Device& device = options.device;
  check(kind != CommunicatorKind::mpi || processes,
        "communicator mpi is for ranks that are processes: start them with mpirun -np N, or take "
        "threads");
  check(kind != CommunicatorKind::threads || !processes,
        "communicator threads is for ranks of one process, and mpirun has started several: take "
        "mpi or nccl");
  check(kind != CommunicatorKind::nccl || !device.is_cpu(),
        "communicator nccl is for ranks on GPUs, not on the CPU: take auto");
  check(kind != CommunicatorKind::nccl || kHasNccl,
        "communicator nccl: this build was configured without NCCL (libnccl-dev); take auto");
  check(exchanges_by_nccl(options, processes) || !options.nccl_windows,
        "sharding.nccl_windows: these ranks do not exchange tensors by NCCL: set it to false, or "
        "start a process for each GPU with 'tessera launch' or mpirun");
}

/// Whether NCCL can join ranks of this machine, if they are processes: several, with a GPU each.
bool suit_nccl([[maybe_unused]] const WorldOptions& options) {
  if constexpr (kHasCuda && kHasNccl) {
    return options.ranks > 1 && !options.device.is_cpu() && options.ranks <= cuda::device_count() &&
           !cuda::threads_stand_for_processes();
  }
  return false;
}

/// Raises Error for NCCL among threads, which may wait for one another for ever.
void refuse_nccl_of_threads(const WorldOptions& options) {
  if constexpr (kHasCuda) {
    check(options.communicator != CommunicatorKind::nccl || options.ranks <= 1 ||
              cuda::threads_stand_for_processes(),
          "communicator nccl: ranks that are threads of one process can wait for each other's GPUs "
          "for ever; start a process for each GPU with 'tessera launch --ranks {}' or mpirun -np "
          "{}, or take threads",
          options.ranks, options.ranks);
  }
}

/// The body, among ranks that leave moving tensors to NCCL.
Body with_nccl([[maybe_unused]] const WorldOptions& options, const Body& body) {
#ifdef TESSERA_NCCL
  return [body, nccl = NcclOptions{.deterministic = options.deterministic,
                                   .deadline = options.deadline,
                                   .check_collectives = options.check_collectives,
                                   .ctas = options.nccl_ctas,
                                   .windows = options.nccl_windows}](Communicator& control) {
    run_with_nccl(control, nccl, body);
  };
#else
  return body;  // not reached: see check_kind
#endif
}

void run_threads(const WorldOptions& options, const Body& body) {
  check_kind(options, /*processes=*/false);
  refuse_nccl_of_threads(options);
  const bool nccl = exchanges_by_nccl(options, /*processes=*/false);
  run_ranks(options, nccl ? with_nccl(options, body) : body);
}

/// Raises Error once unless the launcher's number of ranks is the one asked for.
void check_number(const WorldOptions& options, const Launch& launch, std::string_view launcher,
                  std::string_view option) {
  if (options.ranks == 0 || launch.processes == 0 || options.ranks == launch.processes) return;
  fail_once(options, launch,
            fmt::format("{} has started {} ranks, but {} are asked for: leave the number to "
                        "{}",
                        launcher, launch.processes, options.ranks, option));
}

/// Ranks of torchrun, which leave moving tensors to NCCL.
void run_without_mpi(const WorldOptions& options, const Launch& launch, const Body& body) {
  check_number(options, launch, "torchrun", "torchrun --nproc-per-node");
  const bool takes_nccl = options.communicator == CommunicatorKind::automatic ||
                          options.communicator == CommunicatorKind::nccl;
  if (!kHasNccl || options.device.is_cpu() || !takes_nccl) {
    fail_once(options, launch,
              "ranks of torchrun exchange tensors by NCCL, on GPUs, in a build with NCCL: "
              "otherwise start them with mpirun -np N, or unset RANK to run alone");
  }
  try {
    run_tcp_rank(launch.place, options, with_nccl(options, body));
  } catch (const FailedElsewhere& failure) {
    fail_late(options, failure.what());
  }
}

void run_processes(const WorldOptions& options, const Launch& launch,
                   [[maybe_unused]] const Body& body) {
  check_number(options, launch, "mpirun", "mpirun -np");
  try {
    check_kind(options, /*processes=*/true);
  } catch (const Error& error) {
    fail_once(options, launch, error.what());
  }
#ifdef TESSERA_MPI
  WorldOptions launched = options;
  if (launch.processes != 0) launched.ranks = launch.processes;
  const bool nccl = exchanges_by_nccl(options, /*processes=*/true);
  run_mpi_rank(launched, nccl ? with_nccl(options, body) : body);
#else
  fail_once(options, launch,
            "mpirun has started this program, but it was built without MPI: install OpenMPI "
            "(libopenmpi-dev) and build again, or let ranks be threads (--ranks) without mpirun");
#endif
}

}  // namespace

void fail_late(const WorldOptions& options, const std::string& message) {
  // The launcher's, or the user's: a program's handler might print a line, or wait for a step.
  for (const int number : {SIGINT, SIGTERM}) std::signal(number, SIG_DFL);
  std::this_thread::sleep_for(options.report_delay);
  throw Error(message);
}

bool built_with_mpi() {
#ifdef TESSERA_MPI
  return true;
#else
  return false;
#endif
}

bool are_processes(const WorldOptions& options) {
  const bool takes_nccl = options.communicator == CommunicatorKind::automatic ||
                          options.communicator == CommunicatorKind::nccl;
  return takes_nccl && find_launch().kind == Launch::Kind::none && suit_nccl(options);
}

int planned_ranks(const WorldOptions& options) {
  const Launch launch = find_launch();
  if (launch.kind == Launch::Kind::unusable) throw Error(launch.problem);
  if (launch.processes > 0) return launch.processes;
  return options.ranks == 0 ? 1 : options.ranks;
}

void check_once(const WorldOptions& options, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    const Launch launch = find_launch();
    const bool has_others = launch.kind == Launch::Kind::mpi || launch.kind == Launch::Kind::tcp;
    if (has_others) fail_once(options, launch, error.what());
    throw;
  }
}

void run_world(const WorldOptions& options, const Body& body) {
  const Launch launch = find_launch();
  switch (launch.kind) {
    case Launch::Kind::none:
      return run_threads(options, body);
    case Launch::Kind::mpi:
      return run_processes(options, launch, body);
    case Launch::Kind::tcp:
      return run_without_mpi(options, launch, body);
    case Launch::Kind::unusable:
      throw Error(launch.problem);  // in every process: they cannot agree on one that reports it
  }
}

}  // namespace tessera
