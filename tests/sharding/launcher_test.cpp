// Launchers: a process that was started as one of several never trains alone.
#include "sharding/comm/launcher.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <map>

#include "runtime/error.h"
#include "sharding/comm/world.h"
#include "tests/support/environment.h"

namespace tessera {

using Catch::Contains;
using test::EnvironmentGuard;
using Kind = Launch::Kind;

namespace {

using Variables = std::map<std::string, std::string>;

Launch launch_of(const Variables& variables) {
  return find_launch([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

/// The variables of one of so many ranks on this machine.
Variables torchrun(int rank, int ranks) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(ranks)},
          {"LOCAL_RANK", std::to_string(rank)},
          {"MASTER_ADDR", "localhost"},
          {"MASTER_PORT", "29500"}};
}

}  // namespace

TEST_CASE("launchers of MPI tell their number of processes") {
  const Launch mpirun = launch_of({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}});
  CHECK(mpirun.kind == Kind::mpi);
  CHECK(mpirun.processes == 4);
  CHECK(mpirun.process == 3);
  const Launch pmi = launch_of({{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}});
  CHECK(pmi.kind == Kind::mpi);
  CHECK(pmi.processes == 2);
  CHECK(pmi.process == 1);
  // srun --mpi=pmix
  const Launch pmix = launch_of({{"SLURM_STEP_NUM_TASKS", "2"},
                                 {"SLURM_PROCID", "1"},
                                 {"PMIX_RANK", "1"},
                                 {"PMIX_NAMESPACE", "slurm.pmix.7.0"},
                                 {"PMIX_SERVER_URI4", "pmix-server;tcp4://127.0.0.1:1"}});
  CHECK(pmix.kind == Kind::mpi);
  CHECK(pmix.processes == 2);
  CHECK(pmix.process == 1);
  // mpirun inside a batch job of Slurm
  const Launch both = launch_of(
      {{"OMPI_COMM_WORLD_SIZE", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}});
  CHECK(both.kind == Kind::mpi);
  CHECK(both.processes == 4);
}

TEST_CASE("processes of a launcher that MPI cannot use are told so, with the variables found") {
  const auto problem = [](const Variables& variables) {
    const Launch launch = launch_of(variables);
    CHECK(launch.kind == Kind::unusable);
    return launch.problem;
  };
  CHECK_THAT(problem({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}}),
             Contains("RANK=1, WORLD_SIZE=2, but MASTER_ADDR is not set") &&
                 Contains("start it with torchrun or mpirun -np N") && Contains("unset"));
  const auto with = [&](const std::string& name, const std::string& value) {
    Variables changed = torchrun(1, 2);
    changed[name] = value;
    return changed;
  };
  CHECK_THAT(problem(with("MASTER_PORT", "70000")), Contains("MASTER_PORT is no port"));
  CHECK_THAT(problem(with("MASTER_PORT", "")), Contains("MASTER_PORT is no port"));
  CHECK_THAT(problem(with("LOCAL_RANK", "x")), Contains("LOCAL_RANK is not set"));
  CHECK_THAT(problem(with("RANK", "2")), Contains("there is no such rank"));
  CHECK_THAT(problem({{"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "1"}, {"PMIX_RANK", "1"}}),
             Contains("PMIX_RANK=1") && Contains("srun --mpi=pmix"));
  CHECK_THAT(problem({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}}),
             Contains("SLURM_PROCID=0, SLURM_STEP_NUM_TASKS=2"));
  CHECK_THAT(problem({{"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "1"}}), Contains("SLURM_PROCID=1"));
}

TEST_CASE("ranks that tessera has started know the command that a person typed") {
  Variables variables = torchrun(1, 2);
  CHECK(launch_of(variables).command.empty());
  variables["TESSERA_COMMAND"] = "tessera launch --ranks 2 -- train";
  CHECK(launch_of(variables).command == "tessera launch --ranks 2 -- train");
  variables.erase("RANK");  // a program that such a rank has started
  CHECK(launch_of(variables).command.empty());
}

TEST_CASE("torchrun tells the ranks where to find each other") {
  Variables variables = torchrun(5, 8);
  variables["LOCAL_RANK"] = "1";
  const Launch launch = launch_of(variables);
  CHECK(launch.kind == Kind::tcp);
  CHECK(launch.processes == 8);
  CHECK(launch.process == 5);
  CHECK(launch.place.host == "localhost");
  CHECK(launch.place.port == 29500);
  CHECK(launch.place.rank == 5);
  CHECK(launch.place.ranks == 8);
  CHECK(launch.place.rank_on_machine == 1);
  variables["TORCHELASTIC_RUN_ID"] = "run 7";
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";  // it keeps the port
  CHECK(launch_of(variables).place.run == "run 7");
  CHECK(launch_of(variables).place.port == 29501);
  variables["OMPI_COMM_WORLD_SIZE"] = "8";  // mpirun goes first
  CHECK(launch_of(variables).kind == Kind::mpi);
}

TEST_CASE("ranks of torchrun on the CPU are told to take mpirun, once") {
  const EnvironmentGuard variables(torchrun(0, 2));
  CHECK_THROWS_WITH(run_world({.threads = 1}, [](Communicator&) {}),
                    Contains("exchange tensors by NCCL, on GPUs") && Contains("mpirun -np N"));
  CHECK_THROWS_WITH(run_world({.ranks = 3, .threads = 1}, [](Communicator&) {}),
                    Contains("torchrun has started 2 ranks, but 3 are asked for"));
  CHECK(planned_ranks({}) == 2);
}

TEST_CASE("a rank other than 0 reports a failure too when no launcher has ended it") {
  const EnvironmentGuard variables(torchrun(1, 2));
  WorldOptions options{.threads = 1, .report_delay = std::chrono::milliseconds(1)};
  CHECK_THROWS_WITH(check_once(options, [] { throw Error("no such file"); }),
                    "rank 1: no such file");
  CHECK_THROWS_WITH(run_world(options, [](Communicator&) {}),
                    Catch::StartsWith("rank 1: ranks of torchrun exchange tensors by NCCL"));
  options.ranks = 3;
  CHECK_THROWS_WITH(run_world(options, [](Communicator&) {}),
                    Catch::StartsWith("rank 1: torchrun has started 2 ranks, but 3 are asked for"));
}

TEST_CASE("a program that was started once is not taken for one of several") {
  for (const Variables& variables : std::vector<Variables>{
           {},
           {{"RANK", "1"}},
           {{"WORLD_SIZE", "8"}},
           {{"RANK", "0"}, {"WORLD_SIZE", "1"}},                    // torchrun of one
           {{"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "7"}},          // a shell of salloc
           {{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}},          // a script of sbatch
           {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}},  // srun of one
           {{"SLURM_STEP_NUM_TASKS", "1"}, {"PMI_SIZE", "1"}, {"PMI_RANK", "0"}},
           {{"SLURM_STEP_NUM_TASKS", "1"}, {"PMIX_RANK", "0"}},
           {{"RANK", "one"}, {"WORLD_SIZE", "two"}}}) {
    CAPTURE(variables);
    CHECK(launch_of(variables).kind == Kind::none);
  }
}

TEST_CASE("run_world refuses to run alone in a process of torchrun or of srun") {
  std::atomic<int> bodies = 0;
  const auto run = [&] { run_world({.threads = 1}, [&](Communicator&) { ++bodies; }); };
  {
    const EnvironmentGuard of_torchrun({{"RANK", "1"}, {"WORLD_SIZE", "2"}});
    CHECK_THROWS_WITH(run(), Contains("RANK=1, WORLD_SIZE=2"));
    CHECK_THROWS_WITH(planned_ranks({}), Contains("RANK=1, WORLD_SIZE=2"));
    CHECK_THROWS_WITH(check_once({}, [] { throw Error("the same everywhere"); }),
                      "the same everywhere");
  }
  {
    const EnvironmentGuard of_srun({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}});
    CHECK_THROWS_WITH(run(), Contains("SLURM_STEP_NUM_TASKS=2"));
  }
  CHECK(bodies == 0);
  run();
  CHECK(bodies == 1);
}

}  // namespace tessera
