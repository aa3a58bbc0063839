// tessera launch: a run whose ranks die ends as one that was never disturbed, and leaves no process.
#include "tools/launch/launch.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <thread>

#include "runtime/check.h"
#include "sharding/checkpoint/folder.h"
#include "sharding/comm/world.h"
#include "tests/support/paths.h"
#include "tests/support/waiting.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/parse.h"
#include "tools/launch/process_tree.h"
#include "tools/launch/rank_commands.h"
#include "tools/train/trainer.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using Clock = std::chrono::steady_clock;
using nlohmann::json;
using test::events_of;
using test::model_bytes;
using test::TemporaryDirectory;

constexpr Attempt kKilled = {.status = 137, .trained = true};
constexpr Attempt kError = {.status = 1, .trained = true};
constexpr Attempt kRefused = {.status = 1};

Attempt with_checkpoint(Attempt attempt) {
  attempt.progressed = true;
  return attempt;
}

bool wait_until(const std::function<bool()>& condition) {
  for (const auto end = Clock::now() + test::kSafetyLimit; Clock::now() < end;) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // a look reads all of /proc
  }
  return false;
}

/// Whether this process takes over orphans: their statuses would wait for it.
bool adopts_orphans() {
  int adopts = 0;
  ::prctl(PR_GET_CHILD_SUBREAPER, &adopts);
  return adopts != 0;
}

bool has_mpirun() {
  if (built_with_mpi() && std::system("command -v mpirun > /dev/null") == 0) return true;
  WARN("skipped: there is no mpirun on PATH, or this build is without MPI");
  return false;
}

/// Writes the configuration that the next start of a run reads.
fs::path configure(const TemporaryDirectory& folder, const Config& config) {
  const fs::path file = folder / "run.yaml";
  std::string yaml = to_yaml(config);
  if (const auto rows = config.data.rows_per_rank; rows > 0) {  // in place of batch_size
    const std::size_t key = yaml.find("  batch_size:");
    yaml.erase(key, yaml.find('\n', key) + 1 - key);
  }
  write_file_atomically(file, yaml);
  return file;
}

/// `tessera launch` in the background.
class Launched {
 public:
  /// `before`: words of the shell before the program, such as settings of variables.
  Launched(const TemporaryDirectory& folder, const Config& config, const std::string& options,
           const std::string& before = "")
      : out_(folder / "out.txt"), tree_(command(folder, config, options, before)) {}

  /// The processes that train, in the order in which they were started.
  std::vector<pid_t> ranks() const { return processes("train"); }
  bool wait_for_ranks(std::size_t count) const {
    return wait_until([&] { return ranks().size() == count; });
  }
  void signal(int number) const { tree_.signal(number); }
  /// Waits until `tessera launch` has taken a signal.
  void wait_for_delivery(int number) const {
    for (const pid_t process : processes("launch")) test::wait_for_delivery(process, number);
  }
  /// The status of its end.
  int wait() {
    std::optional<int> status;
    wait_until([&] { return (status = tree_.poll()).has_value(); });
    return status.value_or(-1);
  }
  std::string text() const { return read_text_file(out_); }

 private:
  static std::vector<pid_t> processes(const std::string& command) {
    std::vector<pid_t> found;
    for (const pid_t process : descendants_of(::getpid())) {
      std::ifstream file("/proc/" + std::to_string(process) + "/cmdline", std::ios::binary);
      std::string program, word;
      std::getline(std::getline(file, program, '\0'), word, '\0');
      if (program.ends_with("bin/tessera") && word == command) found.push_back(process);
    }
    std::sort(found.begin(), found.end());
    return found;
  }
  static std::vector<std::string> command(const TemporaryDirectory& folder, const Config& config,
                                          const std::string& options, const std::string& before) {
    const fs::path file = configure(folder, config);
    return {"/bin/sh", "-c",
            fmt::format("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                        "ASAN_OPTIONS=detect_leaks=0 {} exec {}/bin/tessera launch {} -- train {} "
                        "> {} 2>&1",
                        before, TESSERA_BINARY_DIR, options, file.string(),
                        (folder / "out.txt").string())};
  }

  const fs::path out_;
  ProcessTree tree_;
};

/// Far more steps than a test waits for.
Config endless_run(const TemporaryDirectory& folder) {
  Config config = test::tiny_run(folder);
  config.sharding.strategy = StrategyKind::fsdp;
  config.runtime.threads = 1;
  config.train.steps = 1000000;
  config.train.eval_every = 0;
  config.optimizer.schedule = ScheduleKind::constant;  // steps do not depend on their number
  return config;
}

Config run_of(const TemporaryDirectory& folder, std::int64_t steps) {
  Config config = endless_run(folder);
  config.train.steps = steps;
  config.train.checkpoint_every = 20;
  return config;
}

std::string undisturbed_model(const TemporaryDirectory& folder, Config config, int ranks) {
  config.train.dir = folder / "undisturbed";
  config.runtime.ranks = ranks;
  train(config);
  return model_bytes(config.train.dir);
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
  return count;
}

}  // namespace

TEST_CASE("restarts: a killed run is started again, so many times and no more") {
  Restarts restarts({.most = 2, .seconds = 1.0}, {4});
  const auto first = restarts.after(kKilled);
  CHECK(first.restarts);
  CHECK(first.delay == 1.0);
  CHECK(first.reason == "a rank was ended by SIGKILL");
  CHECK(restarts.after(kKilled).restarts);
  const auto third = restarts.after(with_checkpoint(kKilled));
  CHECK_FALSE(third.restarts);
  CHECK(third.reason == "a rank was ended by SIGKILL, and --max-restarts is 2");
  CHECK(restarts.count() == 2);
  CHECK_FALSE(Restarts({.most = 0}, {4}).after(kKilled).restarts);
}

TEST_CASE("restarts: the wait doubles up to a minute, and progress makes it short again") {
  Restarts restarts({.most = 100, .seconds = 1.0}, {4});
  for (const double expected : {1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0}) {
    CHECK(restarts.after(kKilled).delay == expected);
  }
  CHECK(restarts.after(with_checkpoint(kKilled)).delay == 1.0);
  CHECK(restarts.after(kKilled).delay == 2.0);
}

TEST_CASE("restarts: an error before training is not tried again, and one in training once") {
  const auto refused = Restarts({}, {4, 2}).after(kRefused);
  CHECK_FALSE(refused.restarts);
  CHECK(refused.reason == "it ended with status 1 before it began to train");
  // A rank that is killed while it starts is no error of the configuration.
  CHECK(Restarts({}, {4}).after({.status = 137}).restarts);

  Restarts restarts({}, {4});
  CHECK(restarts.after(kError).restarts);
  const auto again = restarts.after(kError);
  CHECK_FALSE(again.restarts);
  CHECK(again.reason == "it ended with status 1 again, without a checkpoint in between");

  Restarts with_progress({}, {4});
  for (int i = 0; i < 3; ++i) CHECK(with_progress.after(with_checkpoint(kError)).restarts);
}

TEST_CASE("restarts: the second failure without progress takes fewer ranks, where permitted") {
  Restarts restarts({.most = 100}, {4, 2, 1});
  restarts.after(kKilled);
  CHECK(restarts.ranks() == 4);
  CHECK(restarts.after(kRefused).restarts);  // a GPU is gone
  CHECK(restarts.ranks() == 2);
  restarts.after(with_checkpoint(kKilled));
  restarts.after(with_checkpoint(kKilled));
  CHECK(restarts.ranks() == 2);
  restarts.after(kKilled);
  CHECK(restarts.ranks() == 1);
  restarts.after(kKilled);
  CHECK(restarts.after(kKilled).restarts);
  CHECK(restarts.ranks() == 1);
}

TEST_CASE("process tree: a command's status, also after a signal, and one that does not exist") {
  const auto status_of = [](const std::string& script) {
    ProcessTree tree({"/bin/sh", "-c", script});
    std::optional<int> status;
    wait_until([&] { return (status = tree.poll()).has_value(); });
    return status;
  };
  CHECK(status_of("exit 7") == 7);
  CHECK(status_of("kill -9 $$") == 137);
  CHECK(status_of("read word; exit $?") == 1);  // it reads nothing
  CHECK_THROWS_WITH(ProcessTree({"/nowhere/mpirun"}),
                    "cannot start /nowhere/mpirun: No such file or directory");
  CHECK_FALSE(adopts_orphans());
}

TEST_CASE("process tree: of several commands the first failure counts, or the end of all") {
  const auto status_of = [](const std::string& first, const std::string& second) {
    ProcessTree tree(
        std::vector<ProcessTree::Command>{{"/bin/sh", "-c", first}, {"/bin/sh", "-c", second}});
    std::optional<int> status;
    wait_until([&] { return (status = tree.poll()).has_value(); });
    return status;
  };
  CHECK(status_of("sleep 300", "exit 7") == 7);
  CHECK(status_of("exit 7", "sleep 300") == 7);
  CHECK(status_of("sleep 0.1", "true") == 0);
  CHECK(descendants_of(::getpid()).empty());
  CHECK_THROWS_WITH(ProcessTree(std::vector<ProcessTree::Command>{{"/bin/sh", "-c", "sleep 300"},
                                                                  {"/nowhere/tessera"}}),
                    Contains("cannot start /nowhere/tessera"));
  CHECK(descendants_of(::getpid()).empty());
  CHECK_FALSE(adopts_orphans());
}

TEST_CASE("launch: ranks without mpirun get torchrun's variables, and a free port") {
  const TemporaryDirectory folder;
  const std::string script =
      fmt::format("echo $RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT > {}/$RANK",
                  folder.path().string());
  ProcessTree tree(rank_commands({"/bin/sh", "-c", script}, 2));
  REQUIRE(wait_until([&] { return tree.poll() == 0; }));
  std::string ports[2];
  for (int rank = 0; rank < 2; ++rank) {
    const std::string text = read_text_file(folder / std::to_string(rank));
    const std::string expected = fmt::format("{0} {0} 2 localhost ", rank);
    REQUIRE(text.starts_with(expected));
    ports[rank] = text.substr(expected.size());
  }
  CHECK(ports[0] == ports[1]);
  CHECK(std::stoi(ports[0]) > 0);
}

TEST_CASE("one of two ranks", "[.rank]") {
  CHECK(std::string(std::getenv("WORLD_SIZE")) == "2");
}
TEST_CASE("rank 1 fails", "[.rank]") {
  CHECK(std::string(std::getenv("RANK")) == "0");
}

TEST_CASE("launch: a program runs again as ranks, with its arguments, until one fails") {
  const auto status_of = [](std::string test) {
    std::string program = "test";
    char* arguments[] = {program.data(), test.data()};
    return run_as_ranks(2, arguments, 2);
  };
  CHECK(status_of("one of two ranks") == 0);
  CHECK(status_of("rank 1 fails") == 1);
}

TEST_CASE("process tree: its end is the end of all below it, also of orphans") {
  const TemporaryDirectory folder;
  const fs::path names = folder / "names";
  std::vector<pid_t> processes;
  {
    // The middle shell ends and leaves an orphan, in a session of its own.
    ProcessTree tree({"/bin/sh", "-c",
                      fmt::format("sh -c 'setsid sleep 300 & echo $! >> {0}'; sleep 300 & echo $! "
                                  ">> {0}; echo $$ >> {0}; wait",
                                  names.string())});
    const auto written = [&] {
      if (!fs::exists(names)) return false;
      std::ifstream file(names);
      processes.assign(std::istream_iterator<pid_t>(file), {});
      return processes.size() == 3;
    };
    REQUIRE(wait_until(written));
    for (const pid_t process : processes) CHECK_FALSE(has_ended(process));
    CHECK(adopts_orphans());
  }
  CHECK_FALSE(adopts_orphans());
  for (const pid_t process : processes) CHECK(has_ended(process));
  CHECK(descendants_of(::getpid()).empty());
}

TEST_CASE("launch: a run whose rank was killed ends with the weights of one never disturbed",
          "[cpu]") {
  if (!has_mpirun()) return;
  const TemporaryDirectory folder;
  Config config = endless_run(folder);
  config.train.checkpoint_every = 20;
  config.train.log_every = 20;
  config.train.resume = "never";  // at the first start only
  Launched launched(folder, config, "--ranks 4 --backoff 0.1");
  REQUIRE(wait_until([&] { return !checkpoints_in(config.train.dir).empty(); }));
  const std::vector<pid_t> ranks = launched.ranks();
  REQUIRE(ranks.size() == 4);
  ::kill(ranks[2], SIGSTOP);  // so no step follows, and no second checkpoint after the next one
  config.train.steps = checkpoints_in(config.train.dir).back().step + 60;
  configure(folder, config);
  ::kill(ranks[2], SIGKILL);
  const int status = launched.wait();
  INFO(launched.text());
  REQUIRE(status == 0);
  CHECK(model_bytes(config.train.dir) == undisturbed_model(folder, config, 4));
  const std::string reason = "restart 1 of 3: a rank was ended by SIGKILL";
  CHECK_THAT(launched.text(), Contains(reason + "; on 4 ranks in 0.1 s"));
  CHECK_THAT(read_text_file(config.train.dir / "log.txt"), Contains("  launch   " + reason));
  const auto events = events_of(config.train.dir, "restart");
  REQUIRE(events.size() == 1);
  CHECK(events[0]["reason"] == reason);
  CHECK(events[0]["step"].get<int>() >= 20);
  CHECK(descendants_of(::getpid()).empty());
}

TEST_CASE("launch: without progress a run goes on with fewer ranks, and keeps its bits by elastic",
          "[cpu]") {
  if (!has_mpirun()) return;
  const TemporaryDirectory folder;
  Config config = endless_run(folder);
  config.train.elastic = 4;
  config.train.checkpoint_every = 0;
  config.train.log_every = 1000;
  Launched launched(folder, config, "--ranks 4 --min-ranks 2 --backoff 0");
  for (int start = 0; start < 2; ++start) {
    if (!launched.wait_for_ranks(4)) FAIL(launched.text());
    const std::vector<pid_t> ranks = launched.ranks();
    ::kill(ranks[1], SIGSTOP);  // so the run does not end
    config.train.steps = 50;
    if (start == 1) configure(folder, config);  // for the last start
    ::kill(ranks[1], SIGKILL);
    REQUIRE(wait_until([&] { return std::all_of(ranks.begin(), ranks.end(), has_ended); }));
  }
  const int status = launched.wait();
  INFO(launched.text());
  CHECK_THAT(launched.text(), Contains("restart 1 of 3") && Contains("; on 4 ranks in 0 s"));
  CHECK_THAT(launched.text(), Contains("restart 2 of 3") && Contains("; on 2 ranks in 0 s"));
  REQUIRE(status == 0);
  CHECK(events_of(config.train.dir, "start")[0]["ranks"] == 2);
  CHECK(model_bytes(config.train.dir) == undisturbed_model(folder, config, 4));
}

TEST_CASE("launch: a signal stops the run with a checkpoint, and the same command continues",
          "[cpu]") {
  if (!has_mpirun()) return;
  for (const int number : {SIGINT, SIGTERM}) {
    const TemporaryDirectory folder;
    Config config = endless_run(folder);
    config.train.log_every = 1;
    Launched launched(folder, config, "--ranks 2");
    REQUIRE(wait_until([&] { return fs::exists(config.train.dir / "config.yaml"); }));
    launched.signal(number);
    const int status = launched.wait();
    INFO(launched.text());
    CHECK(status == 0);
    CHECK_THAT(launched.text(), Contains("stopped by SIGUSR1 after step"));
    CHECK_THAT(launched.text(), !Contains("restart 1"));
    const auto saved = checkpoints_in(config.train.dir);
    REQUIRE(saved.size() == 1);
    config.train.steps = saved[0].step + 1;
    Launched rest(folder, config, "--ranks 2");
    CHECK(rest.wait() == 0);
    CHECK_THAT(rest.text(), Contains("resume   after step"));
    CHECK(descendants_of(::getpid()).empty());
  }
}

TEST_CASE("launch: a second signal ends ranks that do not answer", "[cpu]") {
  if (!has_mpirun()) return;
  const TemporaryDirectory folder;
  const Config config = endless_run(folder);
  Launched launched(folder, config, "--ranks 2");
  REQUIRE(wait_until([&] { return fs::exists(config.train.dir / "config.yaml"); }));
  const std::vector<pid_t> ranks = launched.ranks();
  REQUIRE(ranks.size() == 2);
  ::kill(ranks[0], SIGSTOP);  // so the step does not end
  launched.signal(SIGINT);
  launched.wait_for_delivery(SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  for (const pid_t rank : ranks) CHECK_FALSE(has_ended(rank));
  launched.signal(SIGINT);
  CHECK(launched.wait() == 128 + SIGINT);
  CHECK(descendants_of(::getpid()).empty());
}

TEST_CASE("launch: its own death ends the ranks", "[cpu]") {
  if (!has_mpirun()) return;
  const TemporaryDirectory folder;
  const Config config = endless_run(folder);
  Launched launched(folder, config, "--ranks 2");
  REQUIRE(wait_until([&] { return fs::exists(config.train.dir / "config.yaml"); }));
  const std::vector<pid_t> ranks = launched.ranks();
  REQUIRE(ranks.size() == 2);
  launched.signal(SIGKILL);
  CHECK(wait_until([&] { return std::all_of(ranks.begin(), ranks.end(), has_ended); }));
}

TEST_CASE("launch: errors that come again are not tried for ever", "[cpu]") {
  if (!has_mpirun()) return;
  const TemporaryDirectory folder;
  const auto outcome_of = [&](const Config& config, const std::string& options) {
    Launched launched(folder, config, options);
    const int status = launched.wait();
    return std::pair{status, launched.text()};
  };
  Config config = run_of(folder, 10);
  Config diverges = config;
  diverges.optimizer.learning_rate = 1e30;
  const auto [status, text] = outcome_of(diverges, "--ranks 2 --backoff 0");
  CHECK(status == 1);
  CHECK(count_of(text, "restart 1 of 3") == 2);  // by launch, and in the run's introduction
  CHECK_THAT(text, !Contains("restart 2") && Contains("launch: the run is not started again: it "
                                                      "ended with status 1 again"));

  // The folder is found out by rank 0, after mpirun has started.
  Config refused = config;
  refused.train.dir = "/proc/no/folder";
  const auto [refused_status, refused_text] = outcome_of(refused, "--ranks 2");
  CHECK(refused_status == 1);
  CHECK_THAT(refused_text, Contains("before it began to train"));
  CHECK_THAT(refused_text, !Contains("restart 1"));
}

TEST_CASE("launch: an mpirun that does not end after its ranks is killed", "[cpu]") {
  const TemporaryDirectory folder;
  write_file_atomically(folder / "mpirun", "#!/bin/sh\nsleep 0 &\nexec sleep 600\n");  // a zombie
  fs::permissions(folder / "mpirun", fs::perms::owner_all);
  Launched launched(folder, run_of(folder, 10), "--ranks 2 --max-restarts 0",
                    fmt::format("PATH={}:$PATH", folder.path().string()));
  CHECK(launched.wait() == 128 + SIGKILL);
  CHECK_THAT(launched.text(), Contains("the run is not started again: mpirun did not end after its "
                                       "ranks, and --max-restarts is 0"));
  CHECK(descendants_of(::getpid()).empty());
}

TEST_CASE("launch: mpirun learns soon that another machine is gone, and its own settings stay",
          "[cpu]") {
  const TemporaryDirectory folder;
  write_file_atomically(folder / "mpirun", "#!/bin/sh\nenv | grep keepalive\n");
  fs::permissions(folder / "mpirun", fs::perms::owner_all);
  Launched launched(
      folder, run_of(folder, 10), "--ranks 2",
      fmt::format("PATH={}:$PATH OMPI_MCA_oob_tcp_keepalive_time=7", folder.path().string()));
  CHECK(launched.wait() == 0);
  CHECK_THAT(launched.text(), Contains("OMPI_MCA_oob_tcp_keepalive_time=7\n") &&
                                  Contains("OMPI_MCA_oob_tcp_keepalive_intvl=5\n") &&
                                  Contains("OMPI_MCA_oob_tcp_keepalive_probes=3\n"));
}

TEST_CASE("launch: errors that launch itself finds are one line, and nothing is started", "[cpu]") {
  const TemporaryDirectory folder;
  const Config config = run_of(folder, 10);
  const auto line_of = [&](const Config& bad, const std::string& options,
                           const std::string& before = "") {
    Launched launched(folder, bad, options, before);
    const int status = launched.wait();
    const std::string text = launched.text();
    INFO(text);
    CHECK(status == 1);
    CHECK(count_of(text, "\n") == 1);
    CHECK_THAT(text, Catch::StartsWith("tessera: "));
    return text;
  };
  Config uneven = config;
  uneven.data.batch_size = 3;
  CHECK_THAT(line_of(uneven, "--ranks 2"), Contains("data.batch_size 3 is not a multiple"));
  CHECK_THAT(line_of(config, "--ranks none"), Contains("expected a number from 1 on, or auto"));
  CHECK_THAT(line_of(config, "--ranks 4 --min-ranks 4"), Contains("is not less than --ranks 4"));
  CHECK_THAT(line_of(config, "--ranks 4 --min-ranks 3"),
             Contains("--min-ranks 3: this configuration suits no smaller number of ranks: ") &&
                 Contains("data.batch_size 4 is not a multiple"));
  Config rows = config;
  rows.data.rows_per_rank = 2;
  CHECK_THAT(line_of(rows, "--ranks 4 --min-ranks 2"),
             Contains("data.rows_per_rank gives fewer ranks another batch"));
  Config ranks = config;
  ranks.runtime.ranks = 3;
  CHECK_THAT(line_of(ranks, "--ranks 2"), Contains("runtime.ranks is 3, and --ranks 2"));
  CHECK_THAT(line_of(config, "--ranks 2", "OMPI_COMM_WORLD_SIZE=2"),
             Contains("a launcher has started this process already"));
  if (built_with_mpi()) {
    CHECK_THAT(line_of(config, "--ranks 2", "PATH=/nowhere"), Contains("mpirun is not on PATH"));
  } else {
    CHECK_THAT(line_of(config, "--ranks 2"), Contains("built without MPI"));
  }
  if (::geteuid() == 0) {
    CHECK_THAT(line_of(config, "--ranks 2", "unset OMPI_ALLOW_RUN_AS_ROOT;"),
               Contains("mpirun refuses to run as root"));
  }
#if !defined(TESSERA_CUDA)
  CHECK_THAT(line_of(config, "--ranks auto"), Contains("write their number, as in --ranks 4"));
#endif
}

}  // namespace tessera
