#include "sharding/comm/world.h"

#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "runtime/check.h"
#include "sharding/comm/threads.h"
#ifdef TESSERA_MPI
#include "sharding/comm/mpi.h"
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

/// Every process finds the same: the first one tells it.
[[noreturn]] void fail_once(const std::string& message) {
  if (number_from_launcher({"OMPI_COMM_WORLD_RANK", "PMI_RANK"}).value_or(0) == 0) {
    throw Error(message);
  }
  fail_in_silence();
}

}  // namespace

void fail_in_silence() {
  std::this_thread::sleep_for(std::chrono::seconds(2));
  throw FailedElsewhere();
}

void run_world(const WorldOptions& options, const std::function<void(Communicator&)>& body) {
  const std::optional<int> launched = launched_ranks();
  if (!launched) {
    return run_ranks({.ranks = options.ranks == 0 ? 1 : options.ranks,
                      .device = options.device,
                      .threads = options.threads,
                      .seed = options.seed,
                      .deadline = options.deadline},
                     body);
  }
  if (options.ranks != 0 && options.ranks != *launched) {
    fail_once(
        fmt::format("mpirun has started {} ranks, but {} are asked for: leave the number to "
                    "mpirun -np",
                    *launched, options.ranks));
  }
#ifdef TESSERA_MPI
  WorldOptions told = options;
  told.ranks = *launched;
  run_mpi_rank(told, body);
#else
  fail_once(
      "mpirun has started this program, but it was built without MPI: install OpenMPI "
      "(libopenmpi-dev) and build again, or let ranks be threads (--ranks) without mpirun");
#endif
}

}  // namespace tessera
