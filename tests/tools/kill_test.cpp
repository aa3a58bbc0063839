// Runs that are killed and continued end with the weights of a run that was never disturbed.
//
// TESSERA_KILLS=100 in the environment kills each run a hundred times, in some minutes.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <functional>

#include "runtime/random.h"
#include "sharding/checkpoint/folder.h"
#include "sharding/checkpoint/reader.h"
#include "tests/support/paths.h"
#include "tests/support/waiting.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/parse.h"
#include "tools/train/trainer.h"

namespace tessera {
namespace {

using test::metrics_of;
using test::model_bytes;
using test::TemporaryDirectory;

/// The ranks of a start, and how they share out the run.
struct Layout {
  int ranks;
  int stages = 1, tensor_ranks = 1, context_ranks = 1;
};

constexpr int kElastic = 4, kGrid = 4;

Config killed_run(const TemporaryDirectory& folder) {
  Config config = test::tiny_run(folder);
  config.optimizer.schedule = ScheduleKind::constant;
  config.train.dir = folder / "killed";
  config.train.log_every = 1'000'000;
  config.train.eval_every = 0;
  config.train.checkpoint_every = 5;
  config.train.keep_last = 2;
  config.train.elastic = kElastic;
  return config;
}

void set_layout(Config& config, const Layout& layout) {
  config.runtime.ranks = layout.ranks;
  config.sharding.strategy = layout.ranks > 1 ? StrategyKind::fsdp : StrategyKind::single;
  config.sharding.pipeline_parallel = layout.stages;
  config.sharding.tensor_parallel = layout.tensor_ranks;
  config.sharding.context_parallel = layout.context_ranks;
}

/// Runs the program with run.yaml. `due` is asked every millisecond; when it holds, the program is
/// killed. Returns its status.
int train_and_kill(const TemporaryDirectory& folder, const std::function<bool()>& due) {
  const std::string program = std::string(TESSERA_BINARY_DIR) + "/bin/tessera";
  const std::string config = folder / "run.yaml";
  const std::string out = folder / "out.txt";
  // The process may be killed before it runs at all.
  const int file = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  const pid_t process = ::fork();
  if (process == 0) {
    ::dup2(file, STDOUT_FILENO);
    ::dup2(file, STDERR_FILENO);
    ::execl(program.c_str(), "tessera", "train", config.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(file);
  int status = 0;
  bool ended = false;
  test::wait_for("the run is due to be killed, or has ended", [&] {
    return (ended = ::waitpid(process, &status, WNOHANG) == process) || due();
  });
  if (ended) return status;
  ::kill(process, SIGKILL);
  ::waitpid(process, &status, 0);
  return status;
}

/// Kills `run` many times: every second start has the first of the layouts, and the others have the rest in
/// turn. Its end on the first layout has the weights of one rank that was not disturbed.
void check_killed(Config run, const std::vector<Layout>& layouts, int usual_kills,
                  const TemporaryDirectory& folder) {
  const char* const asked = std::getenv("TESSERA_KILLS");
  const int kills = asked != nullptr ? std::stoi(asked) : usual_kills;
  run.train.steps = 1'000'000;  // it ends by a kill
  const RandomStream random(1, "kills");
  std::int64_t last = 0;
  for (int i = 0; i < kills; ++i) {
    const std::size_t others = layouts.size() - 1, number = static_cast<std::size_t>(i);
    set_layout(run, layouts[i % 2 == 0 ? 0 : 1 + number / 2 % others]);
    write_file_atomically(folder / "run.yaml", to_yaml(run));
    // Soon after the start, or when a new checkpoint has appeared and a few steps more are done.
    const int delay = static_cast<int>(random.below(static_cast<std::uint64_t>(i), 5));
    int waited = 0;
    const int status = train_and_kill(folder, [&] {
      if (i % 5 == 4) return ++waited > 10 * delay;
      const auto checkpoints = checkpoints_in(run.train.dir);
      const bool is_new = !checkpoints.empty() && checkpoints.back().step > last;
      return is_new && ++waited > delay;
    });
    CAPTURE(i, read_text_file(folder / "out.txt"));
    REQUIRE(WIFSIGNALED(status));
    const std::vector<CheckpointFolder> left = checkpoints_in(run.train.dir);
    if (left.empty()) continue;
    REQUIRE(left.back().step >= last);
    last = left.back().step;
    for (const CheckpointFolder& checkpoint : left) {
      CHECK(CheckpointReader(checkpoint.path).problems().empty());
    }
  }
  REQUIRE(last > 0);
  run.train.steps = last + 2;
  set_layout(run, layouts.front());
  train(run);
  CHECK(metrics_of(run.train.dir).size() == 2);  // of the first step and the last
  Config undisturbed = run;
  set_layout(undisturbed, {.ranks = 1});
  undisturbed.train.dir = folder / "undisturbed";
  undisturbed.train.checkpoint_every = 0;  // each waits for the disk
  train(undisturbed);
  CHECK(model_bytes(undisturbed.train.dir) == model_bytes(run.train.dir));
}

}  // namespace

TEST_CASE("a run that is killed, and goes on with other ranks, ends with undisturbed weights",
          "[cpu]") {
  const TemporaryDirectory folder;
  check_killed(killed_run(folder), {{.ranks = 2}, {.ranks = 4}, {.ranks = 1}}, 8, folder);
}

TEST_CASE("a run with muon, groups and averages that is killed ends with undisturbed weights",
          "[cpu]") {
  const TemporaryDirectory folder;
  Config config = killed_run(folder);
  config.optimizer.name = OptimizerKind::muon;
  config.optimizer.groups = {{.match = "tables", .keys = {{"learning_rate_factor", "0.5"}}}};
  config.train.ema = 0.9;
  check_killed(config, {{.ranks = 2}, {.ranks = 4}, {.ranks = 1}}, 4, folder);
}

TEST_CASE("a run of an adapter that is killed ends with undisturbed factors", "[cpu]") {
  const TemporaryDirectory folder;
  Config base = test::tiny_run(folder);
  base.train.steps = 1;
  base.train.dir = folder / "base";
  train(base);
  Config config = killed_run(folder);
  config.model = {.init_from = folder / "base"};
  config.adapter.rank = 2;
  config.adapter.dropout = 0.1;
  check_killed(config, {{.ranks = 2}, {.ranks = 4}, {.ranks = 1}}, 4, folder);
}

TEST_CASE("a run on a curriculum of two sources that is killed ends with undisturbed weights",
          "[cpu]") {
  const TemporaryDirectory folder;
  Config config = killed_run(folder);
  const std::filesystem::path train = config.data.train.first(), val = config.data.val;
  config.data.train.sources = {{.path = train, .weight = 0.7},
                               {.path = val, .weight = 0.3, .until_step = 12},
                               {.path = val, .weight = 0.05, .from_step = 13}};
  config.data.val.clear();
  check_killed(config, {{.ranks = 2}, {.ranks = 4}, {.ranks = 1}}, 4, folder);
}

TEST_CASE(
    "a run of pipeline x shard x tensor ranks that is killed, and goes on with other meshes, "
    "ends with undisturbed weights",
    "[cpu]") {
  const TemporaryDirectory folder;
  Config config = killed_run(folder);
  config.model = test::tiny_model("llama3-8b");
  config.model.heads = config.model.kv_heads = 4;
  config.sharding.grid = kGrid;
  check_killed(config,
               {{.ranks = 8, .stages = 2, .tensor_ranks = 2},
                {.ranks = 4, .tensor_ranks = 4},
                {.ranks = 8, .stages = 4},
                {.ranks = 8, .stages = 2, .context_ranks = 4}},
               4, folder);
}

}  // namespace tessera
