// The programs under mpirun: ranks that are processes compute the same as ranks that are threads.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <future>
#include <thread>

#include "runtime/check.h"
#include "sharding/checkpoint/folder.h"
#include "tests/support/waiting.h"
#include "tests/tools/shell.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/parse.h"
#include "tools/launch/process_tree.h"
#include "tools/train/trainer.h"

namespace tessera {

namespace fs = std::filesystem;
using nlohmann::json;
using test::metrics_of;
using test::model_bytes;
using test::ShellOutcome;
using test::TemporaryDirectory;
using test::tiny_run;

namespace {

/// Runs a command as `ranks` processes.
ShellOutcome mpirun_command(int ranks, const std::string& command,
                            const TemporaryDirectory& folder) {
  return test::shell(
      fmt::format("export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n"
                  "export ASAN_OPTIONS=detect_leaks=0\n"  // OpenMPI's own
                  "timeout --kill-after=5 240 {} --oversubscribe --bind-to none "
                  "-np {} {}",
                  TESSERA_MPIRUN, ranks, command),
      folder);
}

/// Runs one of the project's programs as `ranks` processes.
ShellOutcome mpirun(int ranks, const std::string& program, const TemporaryDirectory& folder) {
  return mpirun_command(ranks, fmt::format("{}/bin/{}", TESSERA_BINARY_DIR, program), folder);
}

/// A training run of two processes, which run in the background.
class TrainingInBackground {
 public:
  explicit TrainingInBackground(const TemporaryDirectory& folder, const Config& config)
      : folder_(folder), run_(config.train.dir) {
    write_file_atomically(folder / "run.yaml", to_yaml(config));
    const std::string command = fmt::format(
        "sh -c 'echo $$ > {0}/pid.$OMPI_COMM_WORLD_RANK; exec {1}/bin/tessera train {0}/run.yaml'",
        folder.path().string(), TESSERA_BINARY_DIR);
    outcome_ = std::async(std::launch::async,
                          [this, command] { return mpirun_command(2, command, folder_); });
  }

  /// Waits until so many steps have been reported.
  void wait_for_steps(std::size_t steps) const {
    const auto reported = [&] {
      const fs::path metrics = run_ / "metrics.jsonl";
      if (!fs::exists(metrics)) return std::size_t{0};
      const std::string text = read_text_file(metrics);
      return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
    };
    while (!ended() && reported() < steps)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  pid_t process_of(int rank) const {
    return std::stoi(read_text_file(folder_ / fmt::format("pid.{}", rank)));
  }
  ShellOutcome wait() { return outcome_.get(); }

 private:
  bool ended() const {
    return outcome_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

  const TemporaryDirectory& folder_;
  const fs::path run_;
  std::future<ShellOutcome> outcome_;
};

/// The system may still have to take its status.
void wait_for_end(pid_t process) {
  test::wait_for("a rank's process has ended", [&] { return has_ended(process); });
}

/// A run that a signal ends.
Config endless_run(const TemporaryDirectory& folder) {
  Config config = tiny_run(folder);
  config.sharding.strategy = StrategyKind::fsdp;
  config.runtime.threads = 1;
  config.train.steps = 1000000;
  config.optimizer.schedule = ScheduleKind::constant;  // steps do not depend on their number
  config.train.eval_every = 0;
  return config;
}

}  // namespace

TEST_CASE("train under mpirun: the metrics, the model and the trace of two threads") {
  const TemporaryDirectory folder;
  Config config = tiny_run(folder);
  config.sharding.strategy = StrategyKind::fsdp;
  config.runtime.threads = 1;
  config.train.progress = ProgressMode::automatic;
  write_file_atomically(folder / "run.yaml", to_yaml(config));
  config.runtime.ranks = 2;
  train(config);
  const ShellOutcome outcome =
      mpirun(2,
             "tessera train " + (folder / "run.yaml").string() +
                 " train.dir=" + (folder / "mpi").string() + " train.profile=2-3",
             folder);
  INFO(outcome.text());
  REQUIRE(outcome.status == 0);
  const auto expected = metrics_of(config.train.dir);
  const auto found = metrics_of(folder / "mpi");
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (const char* key : {"loss", "gradient_norm", "bytes_sent"}) {
      CHECK(found[i][key] == expected[i][key]);
    }
  }
  CHECK_THAT(outcome.text(), Catch::Contains("12/12") && !Catch::Contains("\x1b["));  // no bar
  CHECK(found.back()["val_loss"] == expected.back()["val_loss"]);
  CHECK(model_bytes(folder / "mpi") == model_bytes(config.train.dir));
  const std::string trace = read_text_file(folder / "mpi/profile/trace.json");
  CHECK(trace.find("rank 1") != std::string::npos);
}

TEST_CASE("train under mpirun: a failure is reported once") {
  const TemporaryDirectory folder;
  Config config = tiny_run(folder);
  config.sharding.strategy = StrategyKind::ddp;
  config.optimizer.schedule = ScheduleKind::constant;
  config.data.val.clear();
  const auto failure_of = [&](const Config& bad) {
    write_file_atomically(folder / "run.yaml", to_yaml(bad));
    const ShellOutcome outcome =
        mpirun(2, "tessera train " + (folder / "run.yaml").string(), folder);
    INFO(outcome.text());
    CHECK(outcome.status == 1);
    const std::size_t reported = outcome.text().find("tessera: ");
    REQUIRE(reported != std::string::npos);
    CHECK(outcome.text().find("tessera: ", reported + 1) == std::string::npos);
    // mpirun ends the other process by SIGTERM.
    CHECK(outcome.text().find("stopping after") == std::string::npos);
    CHECK(outcome.text().find("stopped by") == std::string::npos);
    return outcome.text().substr(reported);
  };
  Config diverges = config;
  diverges.optimizer.learning_rate = 1e30;
  CHECK_THAT(failure_of(diverges),
             Catch::StartsWith("tessera: rank ") && Catch::Contains("step 2"));
  // An error of the configuration is no rank's.
  Config uneven = config;
  uneven.data.batch_size = 3;
  CHECK_THAT(failure_of(uneven), Catch::StartsWith("tessera: " + (folder / "run.yaml").string()) &&
                                     Catch::Contains("data.batch_size 3 is not"));
}

TEST_CASE("train under mpirun: a signal to one rank stops all, and the same command continues") {
  const TemporaryDirectory folder;
  Config config = endless_run(folder);
  TrainingInBackground run(folder, config);
  run.wait_for_steps(3);
  ::kill(run.process_of(1), SIGTERM);
  const ShellOutcome stopped = run.wait();
  INFO(stopped.text());
  REQUIRE(stopped.status == 0);
  CHECK_THAT(stopped.text(), Catch::Contains("stopped after step"));
  CHECK_FALSE(fs::exists(config.train.dir / "model"));
  const auto saved = checkpoints_in(config.train.dir);
  REQUIRE(saved.size() == 1);
  config.train.steps = saved[0].step + 5;
  const ShellOutcome rest = mpirun(2,
                                   fmt::format("tessera train {} train.steps={}",
                                               (folder / "run.yaml").string(), config.train.steps),
                                   folder);
  INFO(rest.text());
  REQUIRE(rest.status == 0);
  CHECK_THAT(rest.text(), Catch::Contains("resume   after step"));
  const std::string model = model_bytes(config.train.dir);
  config.train.dir = folder / "threads";
  config.runtime.ranks = 2;
  train(config);
  CHECK(model_bytes(config.train.dir) == model);
  CHECK(metrics_of(folder / "run").size() == static_cast<std::size_t>(config.train.steps));
}

TEST_CASE("train under mpirun: a second signal ends all ranks at once") {
  const TemporaryDirectory folder;
  const Config config = endless_run(folder);
  TrainingInBackground run(folder, config);
  run.wait_for_steps(3);
  const pid_t other = run.process_of(0), signalled = run.process_of(1);
  ::kill(other, SIGSTOP);  // so the step does not end
  ::kill(signalled, SIGINT);
  test::wait_for_delivery(signalled, SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK(::kill(signalled, 0) == 0);
  ::kill(signalled, SIGTERM);
  const ShellOutcome outcome = run.wait();
  INFO(outcome.text());
  CHECK(outcome.status != 0);
  CHECK(outcome.status != 124);  // of `timeout`
  wait_for_end(other);
  wait_for_end(signalled);
  CHECK(checkpoints_in(config.train.dir).empty());
}

TEST_CASE("bench_strategies under mpirun: bytes as predicted, and the bits of threads") {
  const TemporaryDirectory folder;
  const std::string arguments =
      "bench_strategies --device cpu --threads 1 --steps 3 --rounds 1 --json ";
  const std::string processes_file = folder / "processes.json";
  const std::string threads_file = folder / "threads.json";
  const ShellOutcome outcome = mpirun(4, arguments + processes_file, folder);
  INFO(outcome.text());
  REQUIRE(outcome.status == 0);
  REQUIRE(test::shell(arguments + threads_file + " --ranks 4", folder).status == 0);
  const json processes = json::parse(read_text_file(processes_file))["strategies"];
  const json threads = json::parse(read_text_file(threads_file))["strategies"];
  REQUIRE(processes.size() == 7);
  REQUIRE(threads.size() == 7);
  for (std::size_t i = 0; i < processes.size(); ++i) {
    for (const char* key :
         {"strategy", "loss", "gradient_norm", "weights_checksum", "bytes_sent"}) {
      CHECK(processes[i].at(key) == threads[i].at(key));
    }
    CHECK(processes[i]["weights_checksum"] == processes[0]["weights_checksum"]);
  }
}

}  // namespace tessera
