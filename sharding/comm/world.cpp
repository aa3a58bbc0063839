#include "sharding/comm/world.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "runtime/check.h"
#include "sharding/comm/threads/threads.h"
#ifdef TESSERA_MPI
#include "sharding/comm/mpi/mpi.h"
#endif
#ifdef TESSERA_NCCL
#include "sharding/comm/nccl/nccl.h"
#endif

namespace tessera {
namespace {

/// The first of these environment variables that is set, as a number. They are the interface of
/// MPI's launchers: of OpenMPI's mpirun, and of those that speak PMI (MPICH, Slurm).
std::optional<int> number_from_launcher(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  return std::nullopt;
}

std::optional<int> launched_ranks() {
  return number_from_launcher({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"});
}

int launched_rank() {
  return number_from_launcher({"OMPI_COMM_WORLD_RANK", "PMI_RANK"}).value_or(0);
}

/// How long the other processes of a failed run wait for the one that reports the failure.
constexpr auto kExitDelay = std::chrono::seconds(2);

/// Every process finds the same: the first one tells it.
[[noreturn]] void fail_once(const std::string& message) {
  if (launched_rank() == 0) throw Error(message);
  fail_in_silence();
}

#ifdef TESSERA_NCCL
constexpr bool kHasNccl = true;
#else
constexpr bool kHasNccl = false;
#endif

using Body = std::function<void(Communicator&)>;

/// Raises Error unless ranks that are threads (processes) can exchange tensors by `kind`.
void check_kind(CommunicatorKind kind, bool processes, const Device& device) {
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
}

/// The body, among ranks that leave moving tensors to NCCL.
Body with_nccl([[maybe_unused]] const WorldOptions& options, const Body& body) {
#ifdef TESSERA_NCCL
  return [body,
          nccl = NcclOptions{.deterministic = options.deterministic, .deadline = options.deadline}](
             Communicator& control) { run_with_nccl(control, nccl, body); };
#else
  return body;  // not reached: see check_kind
#endif
}

}  // namespace

void fail_in_silence() {
  std::this_thread::sleep_for(kExitDelay);
  throw FailedElsewhere();
}

int planned_ranks(const WorldOptions& options) {
  return launched_ranks().value_or(options.ranks == 0 ? 1 : options.ranks);
}

void check_once(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error&) {
    if (launched_rank() != 0) std::this_thread::sleep_for(kExitDelay);
    throw;
  }
}

void run_world(const WorldOptions& options, const Body& body) {
  const std::optional<int> launched = launched_ranks();
  if (!launched) {
    check_kind(options.communicator, /*processes=*/false, options.device);
    return run_ranks(
        {.ranks = options.ranks == 0 ? 1 : options.ranks,
         .device = options.device,
         .threads = options.threads,
         .seed = options.seed,
         .deadline = options.deadline},
        options.communicator == CommunicatorKind::nccl ? with_nccl(options, body) : body);
  }
  if (options.ranks != 0 && options.ranks != *launched) {
    fail_once(
        fmt::format("mpirun has started {} ranks, but {} are asked for: leave the number to "
                    "mpirun -np",
                    *launched, options.ranks));
  }
  try {
    check_kind(options.communicator, /*processes=*/true, options.device);
  } catch (const Error& error) {
    fail_once(error.what());
  }
#ifdef TESSERA_MPI
  WorldOptions told = options;
  told.ranks = *launched;
  const bool on_gpus = !options.device.is_cpu();
  const bool nccl = options.communicator == CommunicatorKind::nccl ||
                    (options.communicator == CommunicatorKind::automatic && kHasNccl && on_gpus);
  run_mpi_rank(told, nccl ? with_nccl(options, body) : body);
#else
  fail_once(
      "mpirun has started this program, but it was built without MPI: install OpenMPI "
      "(libopenmpi-dev) and build again, or let ranks be threads (--ranks) without mpirun");
#endif
}

}  // namespace tessera
