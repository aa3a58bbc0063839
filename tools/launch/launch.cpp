#include "tools/launch/launch.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/backends.h"
#include "runtime/check.h"
#include "runtime/cuda/device.h"
#include "runtime/text.h"
#include "sharding/checkpoint/folder.h"
#include "sharding/comm/launcher.h"
#include "sharding/comm/world.h"
#include "tools/config/find.h"
#include "tools/config/parse.h"
#include "tools/launch/process_tree.h"
#include "tools/launch/rank_commands.h"
#include "tools/train/lengths.h"
#include "tools/train/log_file.h"
#include "tools/train/resolve.h"
#include "tools/train/resolve_ranks.h"
#include "tools/train/world_options.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using SteadyClock = std::chrono::steady_clock;

/// Between two looks at the run and at signals.
constexpr auto kPause = std::chrono::milliseconds(20);
/// A second signal ends the run. mpirun needs a moment for that, also on other machines.
constexpr auto kGracePeriod = std::chrono::seconds(5);
/// Between two looks at the processes below mpirun, and how often it may be seen to leave zombies.
constexpr auto kLookPeriod = std::chrono::seconds(1);
constexpr int kMostZombieLooks = 5;

volatile std::sig_atomic_t last_signal = 0;
volatile std::sig_atomic_t signals = 0;

void count_signal(int number) {
  if (number == SIGUSR1 && signals > 0) return;  // it asks for a checkpoint, not for an end at once
  last_signal = number;
  signals = signals + 1;
}

void count_stop_signals() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    struct sigaction action {};
    ::sigaction(number, nullptr, &action);
    if (number == SIGHUP && action.sa_handler == SIG_IGN) continue;  // nohup
    action = {};
    action.sa_handler = count_signal;
    action.sa_flags = SA_RESTART;
    ::sigaction(number, &action, nullptr);
  }
}

void print_line(const std::string& line) {
  // A launcher goes on without a reader; fmt::print would raise an error.
  std::fputs(fmt::format("{}  {}\n", clock_now(), line).c_str(), stdout);
  std::fflush(stdout);
}

fs::path find_mpirun() {
  check(built_with_mpi(),
        "this program was built without MPI: install OpenMPI (libopenmpi-dev) and build again, or "
        "let ranks be threads: tessera train --ranks N");
  const char* const path = std::getenv("PATH");
  for (const std::string_view folder : split(path == nullptr ? "" : path, ':')) {
    const fs::path program = fs::path(folder) / "mpirun";
    if (::access(program.c_str(), X_OK) == 0) return program;
  }
  fail(
      "mpirun is not on PATH: install OpenMPI (openmpi-bin), or let ranks be threads: tessera "
      "train "
      "--ranks N");
}

/// mpirun, or an empty path if it is not needed: ranks own a GPU each, on this machine. Raises Error if
/// it is needed and missing, or does not run for this user.
fs::path mpirun_for(const Config& config, const LaunchOptions& options) {
  WorldOptions world = world_options(config);
  world.ranks = options.ranks;
  if (options.mpirun.empty() && are_processes(world)) return {};
  const auto is_set = [](const char* name) { return std::getenv(name) != nullptr; };
  check(::geteuid() != 0 ||
            (is_set("OMPI_ALLOW_RUN_AS_ROOT") && is_set("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")),
        "mpirun refuses to run as root: use another account, or set OMPI_ALLOW_RUN_AS_ROOT=1 and "
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1");
  return find_mpirun();
}

/// Raises Error unless the configuration suits so many ranks.
void check_suits(const Config& config, int ranks) {
  check_ranks(resolve(with_batch_size(config, ranks)), ranks);
}

/// The smaller numbers of ranks that a run may go on with, in falling order.
std::vector<int> smaller_numbers(const Config& config, const LaunchOptions& options) {
  if (options.min_ranks == 0) return {};
  check(options.min_ranks < options.ranks, "--min-ranks {} is not less than --ranks {}",
        options.min_ranks, options.ranks);
  check(
      config.data.rows_per_rank == 0,
      "--min-ranks: data.rows_per_rank gives fewer ranks another batch, and a run cannot continue "
      "with one; set data.batch_size instead");
  std::vector<int> numbers;
  std::string problem;
  for (int ranks = options.ranks - 1; ranks >= options.min_ranks; --ranks) {
    try {
      check_suits(config, ranks);
      numbers.push_back(ranks);
    } catch (const Error& error) {
      if (problem.empty()) problem = error.what();
    }
  }
  check(!numbers.empty(), "--min-ranks {}: this configuration suits no smaller number of ranks: {}",
        options.min_ranks, problem);
  return numbers;
}

/// A file's identity: it changes when the file is replaced.
using FileState = std::optional<std::array<std::int64_t, 3>>;

FileState state_of(const fs::path& file) {
  struct stat found {};
  if (::stat(file.c_str(), &found) != 0) return std::nullopt;
  return std::array<std::int64_t, 3>{static_cast<std::int64_t>(found.st_ino), found.st_mtim.tv_sec,
                                     found.st_mtim.tv_nsec};
}

/// mpirun asks another machine that is silent for so many seconds for a sign of life, so many times.
/// Its own settings make it wait eight minutes for a machine that is gone.
void shorten_keepalive() {
  ::setenv("OMPI_MCA_oob_tcp_keepalive_time", "10", 0);  // an earlier value stays
  ::setenv("OMPI_MCA_oob_tcp_keepalive_intvl", "5", 0);
  ::setenv("OMPI_MCA_oob_tcp_keepalive_probes", "3", 0);
}

/// The step of a run's newest checkpoint, or -1.
std::int64_t newest_step(const fs::path& run) {
  const std::vector<CheckpointFolder> checkpoints = checkpoints_in(run);
  return checkpoints.empty() ? -1 : checkpoints.back().step;
}

class Launcher {
 public:
  Launcher(const LaunchOptions& options, Config config, std::vector<int> ranks)
      : options_(options),
        config_(std::move(config)),
        mpirun_(mpirun_for(config_, options)),
        restarts_(options.limits, std::move(ranks)) {}

  int run() {
    std::string reason;
    for (;;) {
      const Attempt attempt = run_once(reason);
      if (attempt.status == 0) return 0;
      if (signals > 0) return 128 + last_signal;
      const Restarts::Decision next = restarts_.after(attempt);
      if (!next.restarts) {
        std::cerr << "tessera: launch: the run is not started again: " << next.reason << "\n";
        return attempt.status;
      }
      reason =
          fmt::format("restart {} of {}: {}", restarts_.count(), options_.limits.most, next.reason);
      print_line(fmt::format("{}; on {} ranks in {:g} s", reason, restarts_.ranks(), next.delay));
      const auto end = SteadyClock::now() + std::chrono::duration<double>(next.delay);
      while (signals == 0 && SteadyClock::now() < end) std::this_thread::sleep_for(kPause);
      if (signals > 0) return 128 + last_signal;
    }
  }

 private:
  std::vector<ProcessTree::Command> commands(const std::string& reason) const {
    const ProcessTree::Command train = command_of_train(reason);
    if (mpirun_.empty()) return rank_commands(train, restarts_.ranks());
    ProcessTree::Command words = {mpirun_.string(), "-np", std::to_string(restarts_.ranks()),
                                  "--bind-to", "none"};
    if (options_.mpirun.empty()) words.emplace_back("--oversubscribe");
    words.insert(words.end(), options_.mpirun.begin(), options_.mpirun.end());
    words.insert(words.end(), train.begin(), train.end());
    return {words};
  }

  ProcessTree::Command command_of_train(const std::string& reason) const {
    ProcessTree::Command words = {fs::read_symlink("/proc/self/exe").string(), "train",
                                  options_.train.config};
    const std::vector<std::string>& overrides = options_.train.overrides;
    words.insert(words.end(), overrides.begin(), overrides.end());
    words.push_back(fmt::format("runtime.ranks={}", restarts_.ranks()));
    if (continues()) words.emplace_back("train.resume=auto");
    if (!reason.empty()) words.insert(words.end(), {"--restarted", reason});
    return words;
  }

  /// The run has begun and goes on from its own folder, whatever train.resume said at its beginning.
  bool continues() const {
    if (!has_trained_) return false;
    return config_.train.resume == "never" || newest_step(config_.train.dir) >= 0;
  }

  Attempt run_once(const std::string& reason) {
    const fs::path marker = config_.train.dir / "config.yaml";  // replaced when a run begins
    const FileState before = state_of(marker);
    const std::int64_t step = newest_step(config_.train.dir);
    ProcessTree tree(commands(reason));
    Attempt attempt = wait_for(tree);
    attempt.trained = state_of(marker) != before;
    has_trained_ = has_trained_ || attempt.trained;
    const std::int64_t newest = newest_step(config_.train.dir);
    attempt.progressed = newest >= 0 && newest != step;
    return attempt;
  }

  /// Passes signals on until the run has ended. mpirun 4.1 may wait for ever if a rank is killed while
  /// the ranks connect: it is killed if it leaves them all as zombies.
  static Attempt wait_for(ProcessTree& tree) {
    int passed_on = 0, zombie_looks = 0;
    bool hung = false;
    SteadyClock::time_point end, next_look = SteadyClock::now();
    for (;; std::this_thread::sleep_for(kPause)) {
      if (const auto status = tree.poll()) return {.status = *status, .hung = hung};
      if (SteadyClock::now() >= next_look) {
        next_look = SteadyClock::now() + kLookPeriod;
        zombie_looks = tree.leaves_zombies() ? zombie_looks + 1 : 0;
        hung = zombie_looks > kMostZombieLooks;
        if (hung) tree.kill();
      }
      if (passed_on == 0 && signals > 0) {
        tree.signal(SIGUSR1);  // the ranks stop after their step; mpirun passes it on
        passed_on = 1;
      } else if (passed_on == 1 && signals > 1) {
        tree.signal(SIGTERM);  // the ranks end
        passed_on = 2;
        end = SteadyClock::now() + kGracePeriod;
      } else if (passed_on == 2 && SteadyClock::now() > end) {
        tree.kill();
      }
    }
  }

  const LaunchOptions& options_;
  const Config config_;
  const fs::path mpirun_;  // empty: this process starts the ranks
  Restarts restarts_;
  bool has_trained_ = false;
};

}  // namespace

int ranks_of_machine() {
  int gpus = 0;
  if constexpr (kHasCuda) gpus = cuda::device_count();
  check(gpus > 0, "--ranks auto counts GPUs, and {}: write their number, as in --ranks 4",
        kHasCuda ? "this machine has none" : "this program was built without CUDA");
  return gpus;
}

int launch(const LaunchOptions& options) {
  check(find_launch().kind == Launch::Kind::none,
        "a launcher has started this process already: run 'tessera train' there, without launch");
  const Config config = find_config(options.train.config, options.train.overrides);
  check_with_place(config, [&] {
    check(config.runtime.ranks == 0 || config.runtime.ranks == options.ranks,
          "runtime.ranks is {}, and --ranks {}: leave the number to launch", config.runtime.ranks,
          options.ranks);
  });
  check_suits(config, options.ranks);
  std::vector<int> ranks = {options.ranks};
  for (const int fewer : smaller_numbers(config, options)) ranks.push_back(fewer);
  Launcher launcher(options, config, std::move(ranks));
  if (options.min_ranks > 0 && config.train.elastic == 0) {
    print_line("note: on fewer ranks sums round in another order; train.elastic keeps the bits");
  }
  count_stop_signals();
  shorten_keepalive();
  ::setenv("TESSERA_COMMAND", options.command.c_str(), 1);
  return launcher.run();
}

}  // namespace tessera
