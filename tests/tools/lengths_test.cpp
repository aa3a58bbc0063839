#include "tools/train/lengths.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "runtime/error.h"
#include "tests/support/error_of.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/parse.h"
#include "tools/train/run_data.h"
#include "tools/train/trainer.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using test::metrics_of;
using test::model_bytes;
using test::TemporaryDirectory;

Config short_run(const TemporaryDirectory& folder) {
  Config config = test::tiny_run(folder);
  config.train.steps = 3;
  config.train.eval_every = 0;
  config.runtime.threads = 1;
  return config;
}

std::string error_of(const Config& config) {
  return test::error_of([&] { train(config); });
}

}  // namespace

TEST_CASE("rows per rank are a batch that grows with the ranks") {
  const TemporaryDirectory folder;
  Config config = short_run(folder);
  config.sharding.strategy = StrategyKind::ddp;
  config.runtime.ranks = 2;
  config.data.batch_size = 6;
  train(config);
  const std::string model = model_bytes(config.train.dir);
  config.data.batch_size = 8;
  config.data.rows_per_rank = 3;
  config.train.dir = folder / "by_rank";
  train(config);
  CHECK(model_bytes(config.train.dir) == model);
  // The folder's own configuration has the batch, so that it starts the same run again.
  const Config saved = load_config(config.train.dir / "config.yaml");
  CHECK(saved.data.batch_size == 6);
  CHECK(saved.data.rows_per_rank == 0);
  // On other ranks it would be another batch, which a run may not change.
  config.runtime.ranks = 1;
  config.sharding.strategy = StrategyKind::single;
  config.train.steps = 4;
  config.train.checkpoint_every = 2;
  config.train.dir = folder / "other";
  train(config);
  config.runtime.ranks = 2;
  config.sharding.strategy = StrategyKind::ddp;
  CHECK_THAT(error_of(config), Contains("data.batch_size is '6', but '3' in "));
}

TEST_CASE("epochs are the steps in which every row is seen so many times") {
  const TemporaryDirectory folder;
  Config config = short_run(folder);
  const std::int64_t samples = RunData(resolve(config)).train.samples();
  config.data.batch_size = 100;
  REQUIRE(samples % 100 != 0);
  config.train.epochs = 2;
  config.train.log_every = 1;
  train(config);
  const std::int64_t steps = (2 * samples + 99) / 100;
  CHECK(metrics_of(config.train.dir).back().at("step") == steps);
  CHECK(load_config(config.train.dir / "config.yaml").train.steps == steps);
  const std::string model = model_bytes(config.train.dir);

  Config by_steps = config;
  by_steps.train.epochs = 0;
  by_steps.train.steps = steps;
  by_steps.train.dir = folder / "by_steps";
  train(by_steps);
  CHECK(model_bytes(by_steps.train.dir) == model);  // the schedule has the same length

  // Interrupted in the second epoch and continued.
  config.train.checkpoint_every = steps - 3;
  config.train.dir = folder / "resumed";
  train(config);
  fs::remove_all(config.train.dir / "model");
  fs::remove_all(config.train.dir / fmt::format("step-{:06}", steps));
  train(config);
  CHECK(model_bytes(config.train.dir) == model);
}

TEST_CASE("two keys that say the same are refused with the place of the first") {
  const TemporaryDirectory folder;
  const auto parsed = [&](const std::string& yaml) {
    Config config = parse_config(yaml, "run.yaml");
    const Config base = short_run(folder);
    config.model = base.model;
    config.data.train = base.data.train;
    config.data.sequence_length = base.data.sequence_length;
    config.train.dir = folder / "run";
    config.runtime.device = Device{};
    return config;
  };
  CHECK_THAT(error_of(parsed("data:\n  batch_size: 4\n  rows_per_rank: 4\n")),
             Contains("run.yaml:3: data.rows_per_rank and data.batch_size are both set"));
  CHECK_THAT(error_of(parsed("train:\n  epochs: 1\n  steps: 4\n")),
             Contains("run.yaml:2: train.epochs and train.steps are both set"));
  CHECK_THAT(error_of(parsed("train:\n  epochs: 1099511627776\noptimizer:\n  warmup_steps: 3\n")),
             Contains("train.epochs") && Contains("too many"));
  CHECK_THAT(error_of(parsed("train:\n  epochs: 1\noptimizer:\n  warmup_steps: 100000\n")),
             Contains("optimizer.warmup_steps 100000 is more than train.steps"));
  Config config = short_run(folder);
  config.data.rows_per_rank = 2;
  CHECK_THROWS_WITH(resolve(config), Contains("data.rows_per_rank: only training"));
}

}  // namespace tessera
