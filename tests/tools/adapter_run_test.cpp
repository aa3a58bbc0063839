// Runs that train an adapter on a model: their checkpoints, their results, and what is made of them.
#include <catch2/catch.hpp>
#include <fstream>
#include <set>

#include "kernels/nf4/op.h"
#include "kernels/nf4/pack.h"
#include "models/hugging_face.h"
#include "models/peft.h"
#include "sharding/checkpoint/folder.h"
#include "sharding/checkpoint/reader.h"
#include "tests/support/error_of.h"
#include "tests/support/paths.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/tools/tiny_run.h"
#include "tools/checkpoint/convert.h"
#include "tools/export/export.h"
#include "tools/generate/generate.h"
#include "tools/generate/score.h"
#include "tools/train/trainer.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using test::error_of;
using test::model_bytes;
using test::results_of;
using test::TemporaryDirectory;

/// A run on the model of `folder`/base that trains an adapter in 6 steps, with checkpoints after 3 and 6.
Config adapter_run(const TemporaryDirectory& folder, const std::string& preset) {
  Config base = test::tiny_run(folder);
  base.model = test::tiny_model(preset);
  // Transformers has no biases of routers, so they would be left out of a merged model.
  if (base.model.experts > 0) base.moe.balance = Balance::none;
  base.train.dir = folder / "base";
  base.train.steps = 2;
  base.train.eval_every = 0;
  base.data.val.clear();
  train(base);
  Config config = test::tiny_run(folder);
  config.model = {.init_from = folder / "base"};
  config.adapter.rank = 2;
  config.adapter.dropout = 0.1;
  config.train.steps = 6;
  config.train.eval_every = 3;
  config.train.checkpoint_every = 3;
  return config;
}

/// Takes back the end of a run behind step 3.
void interrupt(const fs::path& run) {
  fs::remove_all(run / "model");
  fs::remove_all(checkpoint_path(run, 6));
}

const std::vector<std::vector<std::int32_t>> kRows = {{1, 2, 3, 4, 5, 6, 7}, {7, 3, 1, 0, 2, 9, 4}};

std::vector<double> scores(const fs::path& model, const fs::path& adapter = {}) {
  std::vector<double> all;
  const InferenceOptions options = {
      .model = model, .adapter = adapter, .device = "cpu", .threads = 1};
  const Scores found = score(options, kRows);
  for (const auto& row : found.log_probabilities) {
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

}  // namespace

TEST_CASE("adapters: a checkpoint holds the factors and their moments alone", "[cpu]") {
  const TemporaryDirectory folder;
  const Config config = adapter_run(folder, "llama3-mini");
  train(config);
  const CheckpointReader reader(checkpoint_path(config.train.dir, 3));
  std::set<std::string> others;
  std::size_t factors = 0;
  for (const auto& [name, tensor] : reader.manifest().tensors) {
    if (name.find(".lora_") == name.npos) others.insert(name);
    ++factors;
  }
  CHECK(others.empty());
  CHECK(factors == 2u * 7 * 2 * 3);  // blocks, layers, A and B, values and two moments
  CHECK(nlohmann::json::parse(reader.manifest().state).at("base") ==
        weights_fingerprint(folder / "base"));
  CHECK_FALSE(fs::exists(config.train.dir / "model/model.safetensors"));
}

TEST_CASE("adapters: a run continues bit for bit, by other strategies and on other ranks",
          "[cpu]") {
  const TemporaryDirectory folder;
  Config config = adapter_run(folder, GENERATE("gpt2-mini", "qwen3-moe-mini"));
  config.train.elastic = 4;
  config.data.val.clear();  // its loss is a sum over ranks
  config.runtime.compute_dtype = GENERATE(DType::f32, DType::bf16);
  if (GENERATE(false, true)) config.adapter.base = AdapterBase::nf4;
  train(config);
  const std::string adapter = model_bytes(config.train.dir);
  const std::vector<std::string> results = results_of(config.train.dir);
  for (const auto& [strategy, ranks] :
       {std::pair{StrategyKind::single, 1}, std::pair{StrategyKind::fsdp, 2},
        std::pair{StrategyKind::zero3, 4}, std::pair{StrategyKind::ddp, 2}}) {
    CAPTURE(static_cast<int>(strategy), ranks);
    interrupt(config.train.dir);
    Config again = config;
    again.sharding.strategy = strategy;
    again.runtime.ranks = ranks;
    train(again);
    CHECK(model_bytes(config.train.dir) == adapter);
    CHECK(results_of(config.train.dir) == results);
  }
}

TEST_CASE("adapters: the stages of a pipeline read the base, and have the bits of one rank",
          "[cpu]") {
  const TemporaryDirectory folder;
  Config config = adapter_run(folder, "llama3-mini");
  config.data.accumulation_steps = 2;
  train(config);
  Config stages = config;
  stages.train.dir = folder / "stages";
  stages.sharding.strategy = StrategyKind::fsdp;
  stages.sharding.pipeline_parallel = 2;
  stages.runtime.ranks = 2;
  train(stages);
  CHECK(model_bytes(stages.train.dir) == model_bytes(config.train.dir));
}

TEST_CASE("adapters: a run does not continue on another base, or without one", "[cpu]") {
  const TemporaryDirectory folder;
  const Config config = adapter_run(folder, "gpt2-mini");
  train(config);
  interrupt(config.train.dir);
  const fs::path weights = folder / "base/model/model.safetensors";
  std::string bytes = read_text_file(weights);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(weights, std::ios::binary) << bytes;
  CHECK_THAT(error_of([&] { train(config); }), Contains("model.init_from") &&
                                                   Contains("has other weights (fingerprint") &&
                                                   Contains("step-000003"));
  fs::rename(folder / "base", folder / "away");
  CHECK_THAT(error_of([&] { train(config); }), Contains("no model here"));
  fs::rename(folder / "away", folder / "base");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(weights, std::ios::binary) << bytes;
  train(config);
  Config without = config;
  without.model = test::tiny_model("gpt2-mini");
  without.train.resume = "never";
  CHECK_THAT(error_of([&] { train(without); }),
             Contains("model.init_from is not set: name the model that the adapter is trained on"));
}

TEST_CASE("adapters: a run, its exported adapter and the merged model score alike", "[cpu]") {
  const TemporaryDirectory folder;
  const std::string preset = GENERATE("gpt2-mini", "llama3-mini", "qwen3-moe-mini", "llama4-mini");
  CAPTURE(preset);
  Config config = adapter_run(folder, preset);
  config.adapter.scaling = AdapterScaling::rank_stabilized;
  train(config);
  const fs::path run = config.train.dir, base = folder / "base";
  const std::vector<double> expected = scores(run);
  CHECK(test::relative_error(scores(base), expected) > 1e-3);
  CHECK(scores(base, run) == expected);

  const bool experts = preset.find("moe") != preset.npos || preset == "llama4-mini";
  const std::string warning = export_model({.model = run, .out = folder / "peft"});
  CHECK(warning.empty() != experts);
  CHECK(scores(folder / "peft") == expected);
  export_model({.model = run, .merge = true, .out = folder / "merged"});
  CHECK(test::relative_error(scores(folder / "merged"), expected) < 1e-5);
  export_model({.model = base, .adapter = run, .merge = true, .out = folder / "again"});
  CHECK(read_text_file(folder / "again/model.safetensors") ==
        read_text_file(folder / "merged/model.safetensors"));

  // A checkpoint has the same factors.
  export_checkpoint(run, folder / "checkpoint", /*ema=*/false);
  CHECK(read_text_file(folder / "checkpoint/adapter_model.safetensors") ==
        read_text_file(folder / "peft/adapter_model.safetensors"));

  const GenerateOptions options = {.model = run,
                                   .sampling = {.temperature = 0.0},
                                   .tokens = 5,
                                   .threads = 1,
                                   .device = "cpu",
                                   .prompts = {{.text = {}, .ids = {1, 2, 3}}}};
  const std::vector<Generated> of_run = generate(options, {});
  GenerateOptions of_merged = options;
  of_merged.model = folder / "merged";
  CHECK(generate(of_merged, {}).front().ids == of_run.front().ids);
}

TEST_CASE("adapters: a packed base stays packed in every command, and is unpacked by a merge",
          "[cpu]") {
  const TemporaryDirectory folder;
  const std::string preset = GENERATE("gpt2-mini", "llama3-mini", "qwen3-moe-mini", "llama4-mini");
  CAPTURE(preset);
  Config config = adapter_run(folder, preset);
  config.adapter.base = AdapterBase::nf4;
  config.adapter.targets = preset == "gpt2-mini" ? "c_attn" : "q_proj,experts.*";
  if (preset == "llama3-mini") config.adapter.targets = "q_proj";
  train(config);
  const fs::path run = config.train.dir, base = folder / "base";
  const std::vector<double> expected = scores(run);
  CHECK(scores(base, run) == expected);
  export_model({.model = run, .out = folder / "peft"});
  CHECK(scores(folder / "peft") == expected);
  export_model({.model = run, .merge = true, .out = folder / "merged"});
  CHECK(test::relative_error(scores(folder / "merged"), expected) < 1e-5);

  // Weights without an adapter are those of the packed base; others of the model are untouched.
  const test::Rank rank;
  const auto model = make_pretrained(base);
  const SafetensorsFile before(base / "model/model.safetensors"),
      merged(folder / "merged/model.safetensors");
  const std::string whole = preset == "gpt2-mini" ? "transformer.h.1.mlp.c_proj.weight"
                                                  : "model.layers.1.self_attn.o_proj.weight";
  const std::string name = merged.contains(whole) ? whole : "language_model." + whole;
  REQUIRE(merged.contains(name));
  const Tensor stored = before.tensor(name), found = merged.tensor(name);
  const auto values = stored.to_vector<float>();
  const Tensor packed = Tensor::empty_on_host(nf4_packed_shape(stored.shape()), DType::u8);
  nf4_pack(packed, {}, stored.shape(), [&](const Tensor& to, std::int64_t first) {
    std::copy_n(values.begin() + first, to.numel(), to.data<float>());
  });
  const Tensor unpacked = Tensor::empty_on_host(stored.shape(), DType::f32);
  nf4_unpack(unpacked, packed);
  CHECK(found.to_vector<float>() == unpacked.to_vector<float>());
  CHECK(found.to_vector<float>() != values);
  int untouched = 0;
  for (const auto& [tensor, info] : before.tensors()) {
    if (tensor.find("norm") == tensor.npos && tensor.find("wte") == tensor.npos) continue;
    ++untouched;
    CHECK(merged.tensor(tensor).to_vector<float>() == before.tensor(tensor).to_vector<float>());
  }
  CHECK(untouched > 0);
}

TEST_CASE("adapters: a run goes on from an adapter on the base that it was trained on", "[cpu]") {
  const TemporaryDirectory folder;
  Config config = adapter_run(folder, "llama3-mini");
  config.adapter.base = AdapterBase::nf4;
  train(config);
  Config more = config;
  more.adapter = {{}, config.train.dir};
  more.train.dir = folder / "more";
  more.train.steps = 1;
  more.optimizer.learning_rate = 1e-30;  // a step that changes no value
  more.optimizer.weight_decay = 0.0;
  train(more);
  CHECK(scores(more.train.dir) == scores(config.train.dir));
  CHECK(read_adapter(more.train.dir).options.base == AdapterBase::nf4);
  interrupt(config.train.dir);
  config.adapter.base.reset();
  CHECK_THAT(error_of([&] { train(config); }), Contains("adapter.base"));
}

TEST_CASE("adapters: what cannot be exported is refused in one line", "[cpu]") {
  const TemporaryDirectory folder;
  const fs::path golden = fs::path(TESSERA_SOURCE_DIR) / "tests/golden";
  CHECK_THAT(
      error_of([&] {
        export_model({.model = golden / "llama/llama3", .merge = true, .out = folder / "out"});
      }),
      Contains("--merge:") && Contains("is no adapter"));
  CHECK_THAT(error_of([&] {
               export_model({.model = golden / "llama/llama3",
                             .adapter = golden / "adapters/llama",
                             .out = folder / "out",
                             .dtype = DType::bf16});
             }),
             Contains("an adapter keeps its dtype"));
  CHECK_FALSE(fs::exists(folder / "out/config.json"));
}

TEST_CASE("adapters: a run starts from an adapter of PEFT, with its rank and layers", "[cpu]") {
  const TemporaryDirectory folder;
  Config config = test::tiny_run(folder);
  const fs::path golden = fs::path(TESSERA_SOURCE_DIR) / "tests/golden";
  config.model = {.init_from = golden / "llama/llama3"};
  config.adapter.path = golden / "adapters/llama";
  config.data.sequence_length = 16;
  config.train.steps = 1;
  config.optimizer.learning_rate = 1e-30;  // a step that changes no value
  config.optimizer.weight_decay = 0.0;
  config.data.val.clear();
  train(config);
  CHECK(model_bytes(config.train.dir).size() > 0);
  CHECK(scores(config.train.dir) == scores(golden / "llama/llama3", golden / "adapters/llama"));
}

}  // namespace tessera
