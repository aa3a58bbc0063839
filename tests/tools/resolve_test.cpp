// The values that a configuration leaves open; contradictions are errors with a place.
#include "tools/train/resolve.h"

#include <catch2/catch.hpp>

#include "models/registry.h"
#include "runtime/safetensors.h"
#include "tests/support/error_of.h"
#include "tests/support/rank.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/parse.h"
#include "tools/train/trainer.h"

namespace tessera {

namespace fs = std::filesystem;
using Catch::Contains;
using Catch::StartsWith;
using test::TemporaryDirectory;
using test::tiny_run;

TEST_CASE("a preset's padding is no token of a smaller vocabulary") {
  const auto padding = [](std::int64_t vocab_size) {
    Config config;
    config.model.preset = "llama4-scout";
    config.model.vocab_size = vocab_size;
    return std::get<Llama4Config>(resolve(config).model).padding_id;
  };
  CHECK(padding(0) == 200018);
  CHECK(padding(200019) == 200018);
  CHECK_FALSE(padding(200018).has_value());
}

TEST_CASE("a header says where the vocabulary comes from") {
  const TemporaryDirectory folder;
  Config config = tiny_run(folder);
  CHECK_THAT(describe_model(resolve(config)),
             Contains("2 layers x 16, vocabulary 11 from ") && Contains("manifest.json"));
  config.model.vocab_size = 13;
  CHECK_THAT(describe_model(resolve(config)), Contains("vocabulary 13 from model.vocab_size"));
  Config without = config;
  without.model.vocab_size = 0;
  without.data = {.sequence_length = 24};
  CHECK_THAT(describe_model(resolve(without)), Contains("vocabulary 50257 of preset gpt2-mini"));
  without.data.train = folder / "nowhere/train.bin";
  CHECK_THAT(describe_model(resolve(without)), Contains("no manifest next to data.train"));
}

TEST_CASE("data.document_token is a number or a spelling of the data's tokenizer") {
  const TemporaryDirectory folder;
  Config config = tiny_run(folder);
  CHECK_FALSE(resolve(config).document_token.has_value());
  config.data.document_token = "10";
  CHECK(resolve(config).document_token == 10);
  config.data.document_token = " ";  // characters in ascending order: the space is the first
  CHECK(resolve(config).document_token == 0);
  const auto refused = [&](const std::string& token, const auto& message) {
    config.data.document_token = token;
    CHECK_THROWS_WITH(resolve(config), Contains("data.document_token") && message);
  };
  refused("11", Contains("11; the model's tokens are 0 to 10"));
  refused("99999999999999999999", Contains("0 to 10"));
  refused("- 1", Contains("'-'") || Contains("not in the vocabulary"));
  refused("1 2", Contains("3 tokens; expected one"));
  config.data.train = folder / "nowhere/train.bin";
  refused(" ", Contains("no tokenizer.json") && Contains("number"));
}

TEST_CASE("the kind of RoPE's angles is the configuration's, or that of the model it starts from") {
  const auto angles_of = [](const Config& config) {
    return std::get<LlamaConfig>(resolve(config).model).rope.angles;
  };
  Config config;
  config.model.preset = "llama3-mini";
  CHECK(angles_of(config) == RopeAngles::exact);
  config = parse_config("model: {preset: llama3-mini, rope_angles: f32}", "run.yaml");
  CHECK(angles_of(config) == RopeAngles::f32);

  const test::TemporaryDirectory folder;
  const auto model = make_model(resolve(config).model);
  write_file_atomically(folder / "config.json", model->config().dump());
  const test::Rank rank;
  write_safetensors(folder / "model.safetensors",
                    {{"model.layers.3.input_layernorm.weight", Tensor::zeros({1}, DType::f32)}});
  config.model = {.init_from = folder.path()};
  CHECK(angles_of(config) == RopeAngles::f32);
  config.model.rope_angles = RopeAngles::exact;
  CHECK(angles_of(config) == RopeAngles::exact);
  config.model = {.preset = "gpt2-mini", .rope_angles = RopeAngles::f32};
  CHECK_THROWS_WITH(resolve(config), Contains("model.rope_angles is f32") && Contains("gpt2-mini"));
}

TEST_CASE(
    "sizes of a family's own override the preset's, and sizes that follow may only be repeated") {
  Config config;
  config.model.preset = "llama4-mini";
  CHECK(shape_of(resolve(config).model).chunks.tokens == 64);
  config.model.attention_chunk = 16;
  CHECK(shape_of(resolve(config).model).chunks.tokens == 16);
  config.model.preset = "gpt2-mini";
  CHECK_THROWS_WITH(resolve(config), Contains("model.attention_chunk is 16"));
  config.model.attention_chunk = 0;
  config.model.preset = "llama3-mini";
  config.data.sequence_length = 16;
  config.model.kv_heads = 4;
  config.model.head_size = 32;
  config.model.mlp_width = 96;
  const TransformerShape shape = shape_of(resolve(config).model);
  CHECK(shape.kv_heads == 4);
  CHECK(shape.head_size == 32);
  CHECK(shape.mlp_width == 96);
  config.model.kv_heads = 3;
  CHECK_THROWS_WITH(resolve(config), Contains("multiple of the 3 kv_heads"));
  config.model.kv_heads = 0;
  config.model.dropout = 0.1;
  CHECK_THROWS_WITH(resolve(config), Contains("dropout is 0.1; expected 0"));

  Config gpt2;
  gpt2.data.sequence_length = 16;
  gpt2.model.mlp_width = 1024;  // gpt2-mini's
  CHECK_NOTHROW(resolve(gpt2));
  gpt2.model.mlp_width = 512;
  CHECK_THROWS_WITH(resolve(gpt2), Contains("model.mlp_width is 512") && Contains("has 1024"));
  gpt2.model.mlp_width = 0;
  gpt2.model.kv_heads = 2;
  CHECK_THROWS_WITH(resolve(gpt2), Contains("model.kv_heads is 2") && Contains("has 4"));
}

TEST_CASE("a written configuration has the values of the run and no zeros for derived ones") {
  const TemporaryDirectory folder;
  Config config = tiny_run(folder);
  config.model.layers = config.model.heads = config.model.width = 0;
  config.model.preset = "gpt2-mini";
  config.runtime.ranks = 2;
  config.runtime.threads = 0;
  config.sharding.strategy = StrategyKind::hsdp;
  config.train.steps = 1;
  train(config);
  const Config written = load_config(config.train.dir / "config.yaml");
  CHECK(written.model.layers == 4);  // of gpt2-mini
  CHECK(written.model.heads == 4);
  CHECK(written.model.width == 256);
  CHECK(written.model.vocab_size == 11);
  CHECK(written.runtime.ranks == 2);
  CHECK(written.runtime.threads >= 1);
  CHECK(written.runtime.device == Device{});
  CHECK(written.sharding.shard_size == 1);  // half of the ranks
}

TEST_CASE("a model does not go on with the tokens of another tokenizer") {
  const TemporaryDirectory folder;
  Config config = tiny_run(folder);
  config.train.steps = 1;
  train(config);
  config.model.init_from = config.train.dir / "model";
  config.train.dir = folder / "next";
  // As many characters, so every token id is valid.
  write_file_atomically(folder / "other.txt",
                        std::string(400, 'a') + "bcdefghijk" + std::string(90, 'b'));
  prepare({.inputs = {folder / "other.txt"},
           .tokenizer = "chars",
           .out = folder / "other",
           .val_fraction = 0.1});
  config.data.train = folder / "other/train.bin";
  config.data.val.clear();
  CHECK_THROWS_WITH(train(config), Contains("model.init_from: the tokenizers differ") &&
                                       Contains((folder / "run/model/tokenizer.json").string()) &&
                                       Contains((folder / "other/tokenizer.json").string()));
  CHECK_FALSE(fs::exists(config.train.dir));
  config.data.train = folder / "data/train.bin";
  CHECK_NOTHROW(train(config));
}

TEST_CASE("errors of several keys together keep file and line, and no rank is named") {
  const TemporaryDirectory folder;
  Config config = tiny_run(folder);
  const std::string yaml = to_yaml(config);
  const auto error_of = [&](const std::vector<std::string>& overrides) {
    return test::error_of([&] { train(parse_config(yaml, "run.yaml", overrides)); });
  };
  CHECK_THAT(error_of({"sharding.strategy=fsdp", "runtime.ranks=3"}),
             StartsWith("run.yaml:") && Contains("data.batch_size 4 is not a multiple"));
  CHECK_THAT(error_of({"optimizer.warmup_steps=13"}),
             StartsWith("command line: optimizer.warmup_steps 13 is more than train.steps 12"));
  CHECK_THAT(error_of({"runtime.ranks=2"}), StartsWith("run.yaml:") && Contains("choose ddp"));
  CHECK_THAT(error_of({"train.dir="}), StartsWith("command line: train.dir is empty"));
  CHECK_THAT(error_of({"model.layers=3", "model.init_from=" + (folder / "none").string()}),
             Contains("none"));
  const std::vector<std::string> two_ranks = {"sharding.strategy=ddp", "runtime.ranks=2"};
  const auto error_of_two = [&](const std::string& override) {
    std::vector<std::string> overrides = two_ranks;
    overrides.push_back(override);
    return error_of(overrides);
  };
  CHECK_THAT(error_of_two("data.val=missing.bin"),
             StartsWith("command line: data.val: ") && Contains("missing.bin"));
  CHECK_THAT(error_of_two("model.frozen=transformer.h.7."),
             StartsWith("command line: model.frozen: "));
  CHECK_THAT(error_of_two("sharding.activation_checkpointing=from 2"),
             StartsWith("command line: sharding.activation_checkpointing: "));
  CHECK_THAT(error_of_two("sharding.rules=*.ln_9.* -> ddp"),
             StartsWith("command line: sharding.rules: the pattern '*.ln_9.*' matches no parameter "
                        "of this model; names are like 'transformer.ln_f.bias'"));
  CHECK_THAT(error_of_two("sharding.rules=* -> single"),
             StartsWith("command line: sharding.rules: '* -> single'") && Contains("choose ddp"));
}

TEST_CASE("products of sizes that would overflow are refused before anything is built") {
  const TemporaryDirectory folder;
  Config config = tiny_run(folder);
  config.data.batch_size = config.data.sequence_length = config.model.context = 1 << 24;
  config.model.vocab_size = 1 << 24;
  CHECK_THROWS_WITH(resolve(config), Contains("data.batch_size 16777216") && Contains("too large"));
}

TEST_CASE("eval_batches 0 is every sequence of the file, for any batch size") {
  const TemporaryDirectory folder;
  Config config = tiny_run(folder);
  config.optimizer.learning_rate = 0.0;
  config.train.steps = 1;
  config.train.eval_batches = 0;
  config.runtime.ranks = 1;
  std::vector<double> losses;
  for (const std::int64_t batch : {1, 5, 7}) {
    config.data.batch_size = batch;
    config.train.dir = folder / ("run" + std::to_string(batch));
    train(config);
    losses.push_back(test::metrics_of(config.train.dir).back()["val_loss"].get<double>());
  }
  CHECK(losses[1] == Approx(losses[0]).epsilon(1e-6));
  CHECK(losses[2] == Approx(losses[0]).epsilon(1e-6));
}

}  // namespace tessera
