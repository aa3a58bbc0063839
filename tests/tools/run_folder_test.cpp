// The folder of a run: its lock, earlier runs, outputs that are checked before the first step.
#include "tools/train/run_folder.h"

#include <catch2/catch.hpp>

#include "models/tokenizers/tokenizer.h"
#include "sharding/comm/threads/threads.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/parse.h"
#include "tools/train/step_profile.h"
#include "tools/train/trainer.h"

namespace tessera {

namespace fs = std::filesystem;
using Catch::Contains;
using test::metrics_of;
using test::TemporaryDirectory;
using test::tiny_run;

TEST_CASE("a second run in a folder moves the files of the first one together") {
  const TemporaryDirectory folder;
  Config config = tiny_run(folder);
  config.train.steps = 2;
  train(config);
  const std::string first_model = test::model_bytes(config.train.dir);
  config.train.steps = 3;
  config.train.seed = 5;
  train(config);
  const fs::path earlier = config.train.dir / "earlier.1";
  CHECK(load_config(earlier / "config.yaml").train.steps == 2);
  CHECK(metrics_of(earlier).size() == 2);
  CHECK(test::model_bytes(earlier) == first_model);
  CHECK(load_config(config.train.dir / "config.yaml").train.steps == 3);
  CHECK(metrics_of(config.train.dir).size() == 3);
  train(config);
  CHECK(load_config(config.train.dir / "earlier.2" / "config.yaml").train.steps == 3);
  CHECK(load_config(earlier / "config.yaml").train.steps == 2);
}

TEST_CASE("a run that fails leaves no model of an earlier run next to its metrics") {
  const TemporaryDirectory folder;
  Config config = tiny_run(folder);
  config.train.steps = 2;
  train(config);
  test::diverge(config);
  CHECK_THROWS(train(config));
  CHECK(fs::exists(config.train.dir / "metrics.jsonl"));
  CHECK_FALSE(fs::exists(config.train.dir / "model"));
  CHECK(fs::exists(config.train.dir / "earlier.1" / "model" / "config.json"));
}

TEST_CASE("a run goes on from the model in its own folder") {
  const TemporaryDirectory folder;
  Config config = tiny_run(folder);
  config.train.steps = 1;
  train(config);
  const std::string model = test::model_bytes(config.train.dir);
  config.model.init_from = config.train.dir / "model";
  config.optimizer.learning_rate = 0.0;
  train(config);
  CHECK(test::model_bytes(config.train.dir) == model);
}

TEST_CASE("a folder holds one run at a time") {
  const TemporaryDirectory folder;
  Config config = tiny_run(folder);
  config.train.steps = 1;
  {
    const RunFolder held(config.train.dir);
    CHECK_THROWS_WITH(train(config), Contains("is in use by another run"));
    CHECK_FALSE(fs::exists(config.train.dir / "config.yaml"));
  }
  CHECK_NOTHROW(train(config));
}

TEST_CASE("a folder that could not be prepared is not locked any more") {
  const TemporaryDirectory folder;
  const fs::path run = folder / "run";
  fs::create_directory(run);
  write_file_atomically(run / "config.yaml", "");
  write_file_atomically(run / "earlier.1", "a file where a folder is to be made");
  CHECK_THROWS_WITH(RunFolder(run).start_new(), Contains("cannot make folder"));
  fs::remove(run / "earlier.1");
  CHECK_NOTHROW(RunFolder(run).start_new());
}

TEST_CASE("a folder that is deleted, moved or replaced gets no files any more") {
  const TemporaryDirectory folder;
  const fs::path run = folder / "run";
  const RunFolder held(run);
  CHECK_NOTHROW(held.check_in_place());
  fs::rename(run, folder / "moved");
  CHECK_THROWS_WITH(held.check_in_place(), Contains("was deleted, moved or replaced"));
  fs::create_directories(RunFolder::unfinished_model(run));
  CHECK_THROWS_WITH(held.finish_model(), Contains("was deleted, moved or replaced"));
  CHECK_FALSE(fs::exists(RunFolder::model(run)));
}

TEST_CASE("an error that all ranks share names no rank") {
  const TemporaryDirectory folder;
  Config good = tiny_run(folder);
  good.sharding.strategy = StrategyKind::fsdp;
  good.runtime.ranks = 2;
  const auto fails_with = [&](auto change, const std::string& beginning) {
    Config config = good;
    change(config);
    INFO(beginning);
    CHECK_THROWS_WITH(train(config), Catch::StartsWith(beginning));
    CHECK_FALSE(fs::exists(good.train.dir));
  };
  fails_with([](Config& c) { c.sharding.buckets = "h.9"; }, "sharding.buckets: 'h.9' is no unit");
  fails_with([](Config& c) { c.sharding.buckets = "0"; }, "sharding.buckets is 0; expected");
  fails_with([&](Config& c) { c.train.dir = folder / "text.txt" / "run"; }, "train.dir: cannot");
  fails_with([&](Config& c) { c.train.dir = folder / std::string(300, 'x'); },
             "train.dir: cannot make folder ");
  const RunFolder held(folder / "held");
  fails_with([&](Config& c) { c.train.dir = held.path(); }, "train.dir " + held.path().string());
}

TEST_CASE("a profile that cannot be written is a problem to report, not an error") {
  const TemporaryDirectory folder;
  write_file_atomically(folder / "file", "");
  TrainConfig config;
  config.dir = folder / "file";  // no folder can be below it
  config.profile = {1, 1};
  run_ranks({.ranks = 2, .threads = 1}, [&](Communicator& world) {
    StepProfile profile(config, world);
    profile.start_step(1);
    profile.end_step(1);
    const std::string problem = profile.write(false);
    if (world.rank() == 0) {
      CHECK_THAT(problem, Contains("file"));
    } else if (!problem.empty()) {
      throw Error("rank 1 writes nothing, but has a problem");
    }
  });
}

TEST_CASE("weights and tokenizer of a model appear together") {
  const TemporaryDirectory folder;
  Config config = tiny_run(folder);
  config.train.steps = 1;
  train(config);
  const fs::path model = config.train.dir / "model";
  CHECK(fs::exists(model / "model.safetensors"));
  CHECK(read_text_file(model / Tokenizer::kFileName) ==
        read_text_file(folder / "data" / Tokenizer::kFileName));
  CHECK_FALSE(fs::exists(RunFolder::unfinished_model(config.train.dir)));
}

TEST_CASE("a damaged tokenizer next to the data is found before the first step") {
  const TemporaryDirectory folder;
  const Config config = tiny_run(folder);
  write_file_atomically(folder / "data" / Tokenizer::kFileName, "{\"type\": 7");
  CHECK_THROWS_WITH(train(config), Contains(Tokenizer::kFileName));
  CHECK_FALSE(fs::exists(config.train.dir));
}

}  // namespace tessera
