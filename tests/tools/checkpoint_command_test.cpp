// tessera checkpoint: list, verify, consolidate, export.
#include <catch2/catch.hpp>
#include <fstream>

#include "runtime/safetensors.h"
#include "sharding/checkpoint/folder.h"
#include "tests/tools/run_program.h"
#include "tests/tools/tiny_run.h"
#include "tools/train/trainer.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using test::model_bytes;
using test::Outcome;
using test::TemporaryDirectory;

/// Two ranks train a mixture of experts for 4 steps, with checkpoints after 2 and 4.
Config trained(const TemporaryDirectory& folder) {
  Config config = test::tiny_run(folder);
  config.model = test::tiny_model("qwen3-moe-mini");
  config.model.layers = 1;
  config.moe.bias_rate = 0.05;
  config.train.steps = 4;
  config.train.checkpoint_every = 2;
  config.sharding.strategy = StrategyKind::fsdp;
  config.runtime.ranks = 2;
  config.runtime.threads = 1;
  train(config);
  return config;
}

Outcome checkpoint(const std::string& command, const fs::path& path, const fs::path& out = {}) {
  std::vector<std::string> arguments = {"checkpoint", command, path.string()};
  if (!out.empty()) arguments.insert(arguments.end(), {"--out", out.string()});
  return test::run(arguments);
}

}  // namespace

TEST_CASE("checkpoint list and verify: a line for each, and each problem", "[cpu]") {
  const TemporaryDirectory folder;
  const fs::path run = trained(folder).train.dir;
  const Outcome list = checkpoint("list", run);
  CHECK(list.status == 0);
  CHECK(std::count(list.out.begin(), list.out.end(), '\n') == 3);
  CHECK_THAT(list.out, Catch::Matches("checkpoint +ranks +size +loss +norm +healthy\n"
                                      "step-000002 +2 +0\\.[0-9] MiB +2\\.[0-9]{4} +[0-9.]+ +yes\n"
                                      "step-000004 +2 (.|\n)*"));
  const Outcome good = checkpoint("verify", run);
  CHECK(good.status == 0);
  CHECK_THAT(good.out, Contains("step-000002: good, ") && Contains("step-000004: good, "));

  std::fstream file(checkpoint_path(run, 4) / "rank-00000.safetensors",
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('x');
  file.close();
  fs::remove(checkpoint_path(run, 4) / "config.yaml");
  const Outcome bad = checkpoint("verify", run);
  CHECK(bad.status == 1);
  CHECK_THAT(bad.out, Contains("step-000002: good, ") &&
                          Contains("rank-00000.safetensors is damaged") &&
                          Contains("config.yaml: No such file"));
  CHECK(bad.err == "tessera: 1 of 2 checkpoints are damaged\n");
  CHECK(checkpoint("verify", checkpoint_path(run, 2)).status == 0);
  fs::remove(checkpoint_path(run, 4) / "manifest.json");
  CHECK_THAT(checkpoint("list", run).out, Contains("step-000004    cannot open"));
  const Outcome none = checkpoint("list", folder.path());
  CHECK(none.status == 1);
  CHECK_THAT(none.err, Contains("is no checkpoint and no run folder with one"));
}

TEST_CASE("checkpoint consolidate: whole tensors in one file, from which a run continues",
          "[cpu]") {
  const TemporaryDirectory folder;
  Config config = trained(folder);
  const std::string model = model_bytes(config.train.dir);
  const fs::path out = folder / "whole";
  REQUIRE(checkpoint("consolidate", checkpoint_path(config.train.dir, 2), out).status == 0);
  const SafetensorsFile file(checkpoint_path(out, 2) / "rank-00000.safetensors");
  CHECK(file.tensors().at("model.embed_tokens.weight").shape.rank() == 2);
  CHECK(file.contains("model.embed_tokens.weight.m"));
  CHECK(checkpoint("verify", out).status == 0);
  const Outcome again = checkpoint("consolidate", checkpoint_path(config.train.dir, 2), out);
  CHECK_THAT(again.err, Contains("step-000002 exists; choose another folder"));
  config.train.dir = out;
  train(config);
  CHECK(model_bytes(out) == model);
}

TEST_CASE("checkpoint export: the model that the run would have saved", "[cpu]") {
  const TemporaryDirectory folder;
  const Config config = trained(folder);
  const fs::path out = folder / "exported";
  REQUIRE(checkpoint("export", config.train.dir, out).err.empty());
  CHECK(read_text_file(out / "model.safetensors") == model_bytes(config.train.dir));
  for (const char* name : {"config.json", "tokenizer.json"}) {
    CHECK(read_text_file(out / name) == read_text_file(config.train.dir / "model" / name));
  }
  CHECK_THAT(checkpoint("export", config.train.dir, out).err,
             Contains("holds a model; choose another folder"));
}

}  // namespace tessera
