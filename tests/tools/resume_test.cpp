// Runs that are interrupted and continued: metrics and model of a run that was never interrupted.
#include "tools/train/resume.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <limits>

#include "models/tokenizers/tokenizer.h"
#include "runtime/safetensors.h"
#include "sharding/checkpoint/reader.h"
#include "tests/support/error_of.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/parse.h"
#include "tools/config/sharding_options.h"
#include "tools/train/trainer.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using nlohmann::json;
using test::metrics_of;
using test::model_bytes;
using test::results_of;
using test::TemporaryDirectory;

/// 8 steps with checkpoints after 3, 6 and 8.
Config checkpointed_run(const TemporaryDirectory& folder) {
  Config config = test::tiny_run(folder);
  config.train.steps = 8;
  config.train.eval_every = 4;
  config.train.checkpoint_every = 3;
  config.train.keep_last = 9;
  config.runtime.threads = 1;
  return config;
}

/// Takes back the end of a run: all that came after the checkpoint of `step`.
void interrupt(const fs::path& run, std::int64_t step) {
  fs::remove_all(run / "model");
  for (const CheckpointFolder& checkpoint : checkpoints_in(run)) {
    if (checkpoint.step > step) fs::remove_all(checkpoint.path);
  }
}

/// The run ends as it did before, when it continues after `step` with `again`.
void check_continues(const Config& config, std::int64_t step, const Config& again) {
  train(config);
  const std::string model = model_bytes(config.train.dir);
  const std::vector<std::string> results = results_of(config.train.dir);
  REQUIRE(results.size() == static_cast<std::size_t>(config.train.steps));
  interrupt(config.train.dir, step);
  train(again);
  CHECK(results_of(config.train.dir) == results);
  CHECK(model_bytes(config.train.dir) == model);
}

std::string error_of(const Config& config) {
  return test::error_of([&] { train(config); });
}

std::vector<std::int64_t> steps_in(const fs::path& run) {
  std::vector<std::int64_t> steps;
  for (const CheckpointFolder& checkpoint : checkpoints_in(run)) steps.push_back(checkpoint.step);
  return steps;
}

}  // namespace

TEST_CASE("a continued run has the bits of an uninterrupted one", "[cpu]") {
  const TemporaryDirectory folder;
  Config config = checkpointed_run(folder);
  config.optimizer.warmup_steps = 5;
  SECTION("GPT-2 with dropout on one rank") {
    config.model.dropout = 0.1;
  }
  SECTION("fsdp on two ranks, with accumulation") {
    config.sharding.strategy = StrategyKind::fsdp;
    config.runtime.ranks = 2;
    config.data.accumulation_steps = 2;
  }
  SECTION("momentum") {
    config.optimizer.name = OptimizerKind::sgd;
    config.optimizer.momentum = 0.9;
  }
  SECTION("f16, while the loss scale falls, with groups") {
    config.runtime.compute_dtype = DType::f16;
    config.optimizer.groups = {
        {.match = "matrices", .keys = {{"name", "sgd"}, {"momentum", "0.9"}}},
        {.match = "*.ln_f.*", .keys = {{"frozen", "true"}}},
        {.match = "vectors", .keys = {{"state_dtype", "bf16"}, {"warmup_steps", "2"}}}};
  }
  SECTION("Muon, by fsdp on two ranks") {
    config.optimizer.name = OptimizerKind::muon;
    config.sharding.strategy = StrategyKind::fsdp;
    config.runtime.ranks = 2;
  }
  SECTION("bf16 masters and moments, by fsdp on two ranks") {
    config.runtime.compute_dtype = DType::bf16;
    config.optimizer.master_dtype = DType::bf16;
    config.optimizer.state_dtype = DType::bf16;
    config.sharding.strategy = StrategyKind::fsdp;
    config.runtime.ranks = 2;
  }
  SECTION("an average of the weights, by zero1 on two ranks") {
    config.train.ema = 0.9;
    config.train.evaluate_ema = true;
    config.sharding.strategy = StrategyKind::zero1;
    config.runtime.ranks = 2;
  }
  SECTION("fp8, by fsdp on two ranks") {
    config.runtime.compute_dtype = ComputeDtype::eight_bits();
    config.sharding.strategy = StrategyKind::fsdp;
    config.runtime.ranks = 2;
  }
  SECTION("fp8 with scales of blocks, by fsdp on two ranks") {
    config.runtime.compute_dtype = ComputeDtype::eight_bits();
    config.runtime.fp8_scales = Fp8Scales::blocks;
    config.sharding.strategy = StrategyKind::fsdp;
    config.runtime.ranks = 2;
  }
  SECTION("bf16 with frozen parameters") {
    config.runtime.compute_dtype = DType::bf16;
    config.model.frozen = "transformer.wte";
  }
  SECTION("a mixture of experts with biases, or with lagged losses") {
    config.model = test::tiny_model("qwen3-moe-mini");
    config.sharding.strategy = StrategyKind::zero3;
    config.runtime.ranks = 2;
    config.moe.loss_coefficient = 0.1;
    config.moe.bias_rate = 0.05;
    config.moe.balance = GENERATE(Balance::bias, Balance::lagged);
  }
  SECTION("rows of packed documents") {
    config.data.rows = RowKind::packed;
    config.data.document_token = "0";
  }
  check_continues(config, 3, config);
}

TEST_CASE("a run continues with another strategy, on as many ranks, with the same bits", "[cpu]") {
  const TemporaryDirectory folder;
  Config config = checkpointed_run(folder);
  config.runtime.ranks = 2;
  config.sharding.strategy = StrategyKind::fsdp;
  Config again = config;
  again.sharding.strategy = StrategyKind::zero3;
  again.sharding.live_gathers = 1;
  again.runtime.threads = 2;
  check_continues(config, 6, again);
}

TEST_CASE("a run in 8 bits continues with whole weights or with gathered ones, with the same bits",
          "[cpu]") {
  const TemporaryDirectory folder;
  Config config = checkpointed_run(folder);
  config.runtime.compute_dtype = ComputeDtype::eight_bits();
  config.runtime.ranks = 2;
  const auto [first, second] = GENERATE(std::pair("ddp", "fsdp"), std::pair("fsdp", "ddp"),
                                        std::pair("zero3", "zero1"), std::pair("zero2", "zero3"));
  CAPTURE(first, second);
  check_continues(variant_of(config, first), 3, variant_of(config, second));
}

TEST_CASE("a run in 8 bits continues with the other kind of scales, and a history begins again",
          "[cpu]") {
  const TemporaryDirectory folder;
  Config config = checkpointed_run(folder);
  config.runtime.compute_dtype = ComputeDtype::eight_bits();
  const auto has_history = [&](std::size_t checkpoint) {
    const fs::path path = checkpoints_in(config.train.dir).at(checkpoint).path;
    return json::parse(CheckpointReader(path).manifest().state).contains("fp8");
  };
  train(config);
  interrupt(config.train.dir, 3);
  config.runtime.fp8_scales = Fp8Scales::blocks;
  train(config);
  CHECK(has_history(0));
  CHECK_FALSE(has_history(1));
  const std::vector<std::string> results = results_of(config.train.dir);
  interrupt(config.train.dir, 6);
  train(config);
  CHECK(results_of(config.train.dir) == results);
  interrupt(config.train.dir, 6);
  config.runtime.fp8_scales = Fp8Scales::tensor;
  train(config);
  CHECK(has_history(2));
  CHECK(results_of(config.train.dir) != results);
}

TEST_CASE("a run with experts in 8 bits continues on other ranks with the same bits", "[cpu]") {
  const TemporaryDirectory folder;
  Config config = checkpointed_run(folder);
  config.model = test::tiny_model("qwen3-moe-mini");
  config.runtime.compute_dtype = ComputeDtype::eight_bits();
  config.runtime.ranks = 4;
  config.train.elastic = 4;
  config.sharding.strategy = StrategyKind::fsdp;
  config.sharding.expert_parallel = 2;
  train(config);
  const auto weights = test::saved_weights(config.train.dir);
  const std::vector<std::string> results = results_of(config.train.dir);
  interrupt(config.train.dir, 3);
  config.runtime.ranks = 2;
  config.sharding.strategy = StrategyKind::zero3;
  config.sharding.expert_parallel = 1;
  train(config);
  CHECK(results_of(config.train.dir) == results);
  CHECK((test::saved_weights(config.train.dir) == weights));
}

TEST_CASE("a run continues on another number of ranks", "[cpu]") {
  const TemporaryDirectory folder;
  Config config = checkpointed_run(folder);
  config.sharding.strategy = StrategyKind::ddp;
  config.runtime.ranks = 4;
  train(config);
  const std::vector<json> expected = metrics_of(config.train.dir);
  interrupt(config.train.dir, 3);
  config.runtime.ranks = 1;
  config.sharding.strategy = StrategyKind::single;
  train(config);
  const std::vector<json> found = metrics_of(config.train.dir);
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i]["loss"].get<double>() ==
          Approx(expected[i]["loss"].get<double>()).epsilon(1e-5));
  }
}

TEST_CASE("a damaged checkpoint is named, and the one before is taken", "[cpu]") {
  const TemporaryDirectory folder;
  Config config = checkpointed_run(folder);
  config.sharding.strategy = StrategyKind::fsdp;
  config.runtime.ranks = 2;
  train(config);
  const std::string model = model_bytes(config.train.dir);
  const fs::path newest = checkpoint_path(config.train.dir, 8);
  const auto damage = [&](const fs::path& file, std::int64_t at) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(at);
    const char byte = static_cast<char>(stream.get() ^ 1);
    stream.seekp(at);
    stream.put(byte);
  };
  SECTION("a flipped bit in a rank's file") {
    damage(newest / "rank-00001.safetensors", 20000);
  }
  SECTION("a flipped bit in the manifest") {
    damage(newest / "manifest.json", 300);
  }
  SECTION("a missing file") {
    fs::remove(newest / "rank-00000.safetensors");
  }
  SECTION("two damaged checkpoints") {
    fs::remove(newest / "manifest.json");
    fs::remove(checkpoint_path(config.train.dir, 6) / "manifest.json");
  }
  fs::remove_all(config.train.dir / "model");
  train(config);
  CHECK(model_bytes(config.train.dir) == model);
  CHECK(steps_in(config.train.dir) == std::vector<std::int64_t>{3, 6, 8});
  CHECK(CheckpointReader(newest).problems().empty());
  CHECK(steps_in(config.train.dir / "earlier.1").back() == 8);  // for a look at the damage
}

TEST_CASE("without a checkpoint that loads the run stops and says why", "[cpu]") {
  const TemporaryDirectory folder;
  Config config = checkpointed_run(folder);
  config.train.steps = 3;
  train(config);
  fs::remove(checkpoint_path(config.train.dir, 3) / "rank-00000.safetensors");
  CHECK_THAT(error_of(config), Contains("none of 1 checkpoint can be loaded: cannot open") &&
                                   Contains("step-000003/rank-00000.safetensors"));
  CHECK(fs::exists(config.train.dir / "model"));
  config.train.resume = "never";
  CHECK_NOTHROW(train(config));
}

TEST_CASE("a key that may not change is named with both values", "[cpu]") {
  const TemporaryDirectory folder;
  const Config good = checkpointed_run(folder);
  train(good);
  const auto refused = [&](auto change, const std::string& message) {
    Config config = good;
    change(config);
    CHECK_THAT(error_of(config),
               Contains(message) && Contains("step-000008") && Contains("train.resume=never"));
  };
  refused([](Config& c) { c.model.layers = 3; }, "model.layers is '3', but '2' in");
  refused([](Config& c) { c.data.batch_size = 8; }, "data.batch_size is '8', but '4' in");
  refused([](Config& c) { c.train.ema = 0.9; }, "train.ema is '0.9', but '0' in");
  refused([](Config& c) { c.train.seed = 9; }, "train.seed is '9', but '1' in");
  refused([](Config& c) { c.optimizer.learning_rate = 1; }, "optimizer.learning_rate is '1', but");
  refused([](Config& c) { c.optimizer.master_dtype = DType::bf16; },
          "optimizer.master_dtype is 'bf16', but 'f32' in");
  refused([](Config& c) { c.optimizer.state_dtype = DType::bf16; },
          "optimizer.state_dtype is 'bf16', but 'f32' in");
  refused(
      [](Config& c) {
        c.optimizer.groups = {{.match = "tables", .keys = {{"beta2", "0.9"}}}};
      },
      "optimizer.groups is '[{match: \"tables\", beta2: 0.9}]', but '' in");
  refused(
      [](Config& c) {
        c.optimizer.groups = {{.match = "tables", .keys = {{"frozen", "true"}}}};
      },
      "optimizer.groups is '[{match: \"tables\", frozen: true}]', but '' in");
  refused([](Config& c) { c.data.val.clear(); }, "data.val is '', but");
  Config shorter = good;
  shorter.train.steps = 7;
  CHECK_THAT(error_of(shorter), Contains("train.steps 7 is less than the 8 steps of"));
  for (const char* key : {"runtime.ranks", "sharding.strategy", "train.steps", "train.log_every",
                          "train.checkpoint_every", "train.resume", "kernels.attention",
                          "sample.prompt", "data.hellaswag"}) {
    CHECK(may_change_on_resume(key));
  }
  for (const char* key : {"train.seed", "train.batch_ramp", "model.width", "moe.balance",
                          "data.train", "optimizer.beta1"}) {
    CHECK_FALSE(may_change_on_resume(key));
  }
}

TEST_CASE("other data under the same name are noticed", "[cpu]") {
  const TemporaryDirectory folder;
  Config config = checkpointed_run(folder);
  train(config);
  write_file_atomically(folder / "text.txt", test::counting_text() + test::counting_text());
  prepare({.inputs = {folder / "text.txt"},
           .tokenizer = "chars",
           .out = folder / "data",
           .val_fraction = 0.1});
  config.train.steps = 9;
  CHECK_THAT(error_of(config), Contains("data.train") && Contains("was saved with"));
}

TEST_CASE("a complete run is left as it is, and goes on with more steps", "[cpu]") {
  const TemporaryDirectory folder;
  Config config = checkpointed_run(folder);
  config.optimizer.schedule = ScheduleKind::constant;
  config.train.eval_every = 0;
  train(config);
  const auto written = fs::last_write_time(config.train.dir / "metrics.jsonl");
  train(config);
  CHECK(fs::last_write_time(config.train.dir / "metrics.jsonl") == written);
  CHECK(fs::exists(config.train.dir / "model"));
  CHECK_FALSE(fs::exists(config.train.dir / "earlier.1"));
  config.train.steps = 12;
  train(config);
  Config at_once = config;
  at_once.train.dir = folder / "at once";
  train(at_once);
  CHECK(results_of(config.train.dir) == results_of(at_once.train.dir));
  CHECK(model_bytes(config.train.dir) == model_bytes(at_once.train.dir));
}

TEST_CASE("train.resume takes a checkpoint or another run's folder, or never", "[cpu]") {
  const TemporaryDirectory folder;
  const Config config = checkpointed_run(folder);
  train(config);
  Config other = config;
  other.train.dir = folder / "other";
  for (const fs::path& from : {checkpoint_path(config.train.dir, 3), config.train.dir}) {
    CAPTURE(from.string());
    other.train.resume = from.string();
    train(other);
    CHECK(model_bytes(other.train.dir) == model_bytes(config.train.dir));
  }
  // The second of these found the first one's files.
  CHECK(fs::exists(other.train.dir / "earlier.1" / "step-000006"));
  Config back = config;
  back.train.resume = checkpoint_path(config.train.dir, 3).string();
  back.train.eval_every = 2;
  train(back);
  CHECK(steps_in(config.train.dir / "earlier.1") == std::vector<std::int64_t>{6, 8});
  back.train.resume = (folder / "none").string();
  CHECK_THAT(error_of(back), Contains("train.resume: ") && Contains("is no checkpoint"));
  back.train.resume = "never";
  train(back);
  CHECK(metrics_of(config.train.dir).size() == 8);
  CHECK(steps_in(config.train.dir / "earlier.2") == std::vector<std::int64_t>{3, 6, 8});
}

TEST_CASE("old checkpoints are deleted", "[cpu]") {
  const TemporaryDirectory folder;
  Config config = checkpointed_run(folder);
  config.train.checkpoint_every = 1;
  config.train.keep_last = 2;
  config.train.keep_every = 3;
  train(config);
  CHECK(steps_in(config.train.dir) == std::vector<std::int64_t>{3, 6, 7, 8});
}

TEST_CASE("on_nonfinite=skip leaves the weights alone, for ten steps in a row", "[cpu]") {
  const TemporaryDirectory folder;
  Config config = checkpointed_run(folder);
  config.train.on_nonfinite = OnNonfinite::skip;
  config.train.steps = 20;
  config.train.checkpoint_every = 1;
  config.train.keep_last = 3;
  test::diverge(config);
  CHECK_THAT(error_of(config), Contains("step 12: the loss is ") &&
                                   Contains("10 steps in a row were skipped, and the run stops"));
  // The last checkpoint with a finite norm is there.
  REQUIRE(steps_in(config.train.dir).front() == 1);
  CheckpointReader healthy(checkpoint_path(config.train.dir, 1));
  CHECK(healthy.manifest().healthy);
  CheckpointReader skipped(checkpoints_in(config.train.dir).back().path);
  CHECK_FALSE(skipped.manifest().healthy);
  for (const auto& [name, tensor] : healthy.manifest().tensors) {
    std::vector<std::byte> before(static_cast<std::size_t>(4 * tensor.shape.numel()));
    std::vector<std::byte> after(before.size());
    healthy.read(name, 0, before);
    skipped.read(name, 0, after);
    CHECK(before == after);
  }
  CHECK(json::parse(skipped.manifest().state)["updates"] == 1);
  CHECK(json::parse(skipped.manifest().state)["batches"] == skipped.manifest().step);
}

TEST_CASE("on_nonfinite=rollback goes back to a checkpoint and on with other batches", "[cpu]") {
  const TemporaryDirectory folder;
  Config config = checkpointed_run(folder);
  config.train.on_nonfinite = OnNonfinite::rollback;
  config.train.checkpoint_every = 1;
  config.runtime.ranks = 2;
  config.sharding.strategy = StrategyKind::fsdp;
  config.train.log_every = 1;
  test::diverge(config);
  CHECK_THAT(error_of(config), Contains("step 2: the loss is ") &&
                                   Contains("the run went back to step 1 3 times, and stops"));
  config.train.dir = folder / "none";
  config.train.checkpoint_every = 5;
  CHECK_THAT(error_of(config), Contains("there is no checkpoint to go back to"));
}

TEST_CASE("a rollback leaves out the batch that diverged", "[cpu]") {
  const TemporaryDirectory folder;
  Config config = checkpointed_run(folder);
  std::string text = test::counting_text().substr(0, 800);
  text.insert(400, "Z");
  write_file_atomically(folder / "text.txt", text);
  prepare({.inputs = {folder / "text.txt"},
           .tokenizer = "chars",
           .out = folder / "data",
           .val_fraction = 0.0});
  config.data.val.clear();
  config.model = test::tiny_model("llama2-7b");  // its embedding is not tied to the head
  config.model.layers = 1;
  config.train.steps = 1;
  config.train.dir = folder / "before";
  train(config);
  // One token's vector is infinite in bf16. So a step with this token in its batch diverges.
  const fs::path model = config.train.dir / "model/model.safetensors";
  const std::int64_t token = Tokenizer::load(folder / "data")->encode("Z").front();
  const TensorInfo embedding = SafetensorsFile(model).tensors().at("model.embed_tokens.weight");
  std::string bytes = read_text_file(model);
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  const std::vector<float> row(16, std::numeric_limits<float>::max());
  const std::size_t first = 8 + header + embedding.begin + static_cast<std::size_t>(token) * 16 * 4;
  std::memcpy(bytes.data() + first, row.data(), 16 * 4);
  write_file_atomically(model, bytes);

  config.model = {.init_from = config.train.dir / "model"};
  config.train.dir = folder / "run";
  config.train.steps = 12;  // more than an epoch
  config.runtime.compute_dtype = DType::bf16;
  config.optimizer.weight_decay = 0.0;
  config.train.checkpoint_every = 1;
  config.train.on_nonfinite = OnNonfinite::rollback;
  config.optimizer.schedule = ScheduleKind::constant;
  config.runtime.ranks = 2;
  config.sharding.strategy = StrategyKind::fsdp;
  train(config);
  const CheckpointManifest manifest =
      CheckpointReader(checkpoint_path(config.train.dir, 12)).manifest();
  CHECK(json::parse(manifest.state)["batches"].get<int>() > 12);
  const std::vector<json> metrics = metrics_of(config.train.dir);
  CHECK(metrics.size() == 12);
  for (const json& line : metrics) CHECK(line["loss"].is_number());
}

}  // namespace tessera
