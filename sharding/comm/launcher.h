// Launch: the environment variables by which a launcher describes its processes.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "sharding/comm/tcp/options.h"

namespace tessera {

/// Reads one environment variable; null if it is not set.
using Environment = std::function<const char*(const char* name)>;

struct Launch {
  enum class Kind {
    none,     // the program was started by hand: its ranks are threads
    mpi,      // by a launcher that MPI can use: mpirun, or srun --mpi=pmix
    tcp,      // by torchrun: the ranks find each other by TCP, and exchange tensors by NCCL
    unusable  // by a launcher without either: other processes exist, but cannot be found
  };
  Kind kind = Kind::none;
  /// The launcher's number of processes, and this one's among them; 0 if it did not say.
  int processes = 0;
  int process = 0;
  /// For `tcp`.
  TcpRank place = {};
  /// If `tessera` has started the processes: the words of its command before the file's name, such as
  /// "tessera launch --ranks 4 -- train".
  std::string command = {};
  /// For `unusable`: one line with the variables that were found, and advice.
  std::string problem;
};

/// Reads the environment. A process that a launcher started must not train alone: it would repeat
/// the work of the others and overwrite their files. In this order:
///
///   OMPI_COMM_WORLD_SIZE               mpi: OpenMPI's mpirun
///   SLURM_STEP_NUM_TASKS = 1           none: one task of srun is a program of its own
///   PMI_SIZE                           mpi: a launcher that speaks PMI
///   PMIX_RANK                          mpi, if a PMIx server is named too; otherwise unusable
///   SLURM_PROCID with
///     SLURM_STEP_NUM_TASKS > 1         unusable: several tasks of srun, without --mpi=pmix
///   SLURM_PROCID > 0                   unusable: the same, by a Slurm that names no step
///   RANK and WORLD_SIZE > 1            tcp, if LOCAL_RANK, MASTER_ADDR and MASTER_PORT are set too
///                                      (torchrun); otherwise unusable
///
/// These alone mean nothing. SLURM_NTASKS is set in an allocation (salloc) and SLURM_PROCID = 0 in
/// a batch script (sbatch), where programs run once. RANK and WORLD_SIZE count as a pair only.
///
/// `tessera` sets TESSERA_COMMAND for the processes that it starts, itself or by mpirun.
///
/// torchrun may keep MASTER_PORT for a store of its own, and says so by
/// TORCHELASTIC_USE_AGENT_STORE=True. Then the ranks use the next port.
Launch find_launch(const Environment& environment);
/// The same of this process's environment.
Launch find_launch();

}  // namespace tessera
