#include "sharding/comm/launcher.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "runtime/check.h"

namespace tessera {
namespace {

/// The value of a variable that holds a number, and nothing else.
std::optional<int> number(const Environment& environment, const char* name) {
  const char* const value = environment(name);
  if (value == nullptr) return std::nullopt;
  const std::string_view text = value;
  int result = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), result);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return result;
}

bool names_pmix_server(const Environment& environment) {
  for (const char* const name : {"PMIX_SERVER_URI", "PMIX_SERVER_URI2", "PMIX_SERVER_URI21",
                                 "PMIX_SERVER_URI3", "PMIX_SERVER_URI4", "PMIX_SERVER_URI41"}) {
    if (environment(name) != nullptr) return environment("PMIX_NAMESPACE") != nullptr;
  }
  return false;
}

Launch unusable(int processes, int process, const std::string& found, std::string_view advice) {
  return {.kind = Launch::Kind::unusable,
          .processes = processes,
          .process = process,
          .place = {},
          .problem = fmt::format("this process was started as one of several ({}), but it cannot "
                                 "find the others: {}, or unset these variables to run alone",
                                 found, advice)};
}

constexpr int kLastPort = 65535;
constexpr std::string_view kSlurmAdvice = "start it with srun --mpi=pmix or mpirun -np N";

std::optional<Launch> find_mpi(const Environment& environment, const char* size, const char* rank) {
  const auto processes = number(environment, size);
  if (!processes) return std::nullopt;
  return Launch{.kind = Launch::Kind::mpi,
                .processes = *processes,
                .process = number(environment, rank).value_or(0),
                .place = {},
                .problem = {}};
}

std::optional<Launch> find_slurm_or_pmix(const Environment& environment) {
  const auto tasks = number(environment, "SLURM_STEP_NUM_TASKS");
  if (tasks == 1) return Launch{};
  if (const auto launch = find_mpi(environment, "PMI_SIZE", "PMI_RANK")) return launch;
  if (const auto rank = number(environment, "PMIX_RANK")) {
    if (!names_pmix_server(environment)) {
      return unusable(tasks.value_or(0), *rank, fmt::format("PMIX_RANK={}", *rank), kSlurmAdvice);
    }
    return Launch{.kind = Launch::Kind::mpi,
                  .processes = tasks.value_or(0),
                  .process = *rank,
                  .place = {},
                  .problem = {}};
  }
  const auto task = number(environment, "SLURM_PROCID");
  if (task && tasks > 1) {
    return unusable(*tasks, *task,
                    fmt::format("SLURM_PROCID={}, SLURM_STEP_NUM_TASKS={}", *task, *tasks),
                    kSlurmAdvice);
  }
  if (task > 0) return unusable(0, *task, fmt::format("SLURM_PROCID={}", *task), kSlurmAdvice);
  return std::nullopt;
}

std::optional<Launch> find_torchrun(const Environment& environment) {
  const auto rank = number(environment, "RANK"), size = number(environment, "WORLD_SIZE");
  if (!rank || !size || *size <= 1) return std::nullopt;
  const auto refuse = [&](const std::string& problem) {
    return unusable(*size, *rank, fmt::format("RANK={}, WORLD_SIZE={}, {}", *rank, *size, problem),
                    "start it with torchrun or mpirun -np N");
  };
  if (*rank < 0 || *rank >= *size) return refuse("but there is no such rank");
  const char* const host = environment("MASTER_ADDR");
  if (host == nullptr || *host == '\0') return refuse("but MASTER_ADDR is not set");
  const auto port = number(environment, "MASTER_PORT");
  if (!port || *port < 1 || *port > kLastPort) return refuse("but MASTER_PORT is no port");
  const auto local = number(environment, "LOCAL_RANK");
  if (!local || *local < 0) return refuse("but LOCAL_RANK is not set");
  const char* const run = environment("TORCHELASTIC_RUN_ID");
  const char* const agent = environment("TORCHELASTIC_USE_AGENT_STORE");
  const bool is_taken = agent != nullptr && std::string_view(agent) == "True";
  return Launch{.kind = Launch::Kind::tcp,
                .processes = *size,
                .process = *rank,
                .place = {.host = host,
                          .port = *port + (is_taken && *port < kLastPort ? 1 : 0),
                          .rank = *rank,
                          .ranks = *size,
                          .rank_on_machine = *local,
                          .run = run == nullptr ? "" : run},
                .problem = {}};
}

Launch find_launcher(const Environment& environment) {
  const auto mpirun = find_mpi(environment, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK");
  if (mpirun) return *mpirun;
  if (const auto launch = find_slurm_or_pmix(environment)) return *launch;
  if (const auto launch = find_torchrun(environment)) return *launch;
  return {};
}

}  // namespace

Launch find_launch(const Environment& environment) {
  Launch launch = find_launcher(environment);
  const char* const command = environment("TESSERA_COMMAND");
  if (launch.kind != Launch::Kind::none && command != nullptr) launch.command = command;
  return launch;
}

Launch find_launch() {
  return find_launch([](const char* name) { return std::getenv(name); });
}

}  // namespace tessera
