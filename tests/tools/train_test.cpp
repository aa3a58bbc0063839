// Whole runs of a tiny model: their files, their bits, their errors.
#include <array>
#include <catch2/catch.hpp>
#include <string>
#include <tuple>

#include "runtime/file.h"
#include "runtime/safetensors.h"
#include "sharding/comm/threads/threads.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/parse.h"
#include "tools/data/token_file.h"
#include "tools/generate/generate.h"
#include "tools/train/session.h"
#include "tools/train/trainer.h"

namespace tessera {

using nlohmann::json;
using test::metrics_of;
using test::model_bytes;
using test::TemporaryDirectory;
using test::tiny_run;

TEST_CASE("a run learns, and leaves configuration, metrics and model") {
  const TemporaryDirectory folder;
  Config config = tiny_run(folder);
  config.train.steps = 120;
  train(config);

  const auto lines = metrics_of(config.train.dir);
  REQUIRE(lines.size() == 120);
  // An untrained model guesses among its 11 characters: ln 11 = 2.398.
  CHECK(lines.front()["loss"].get<double>() == Approx(2.398).margin(0.1));
  // A model that does not look back, with a third spaces and two thirds of ten digits, has a loss of
  // ln(3)/3 + 2 ln(15)/3 = 2.17.
  CHECK(lines.back()["loss"].get<double>() < 2.0);
  CHECK(lines.back()["val_loss"].get<double>() < 2.0);
  CHECK_FALSE(lines[2].contains("val_loss"));
  CHECK(lines[11].contains("val_loss"));

  const Config again = load_config(config.train.dir / "config.yaml");
  CHECK(again.train.steps == 120);
  CHECK(again.model.width == 16);
  const SafetensorsFile weights(config.train.dir / "model/model.safetensors");
  CHECK(weights.tensors().at("transformer.wte.weight").shape == Shape{11, 16});
  CHECK(json::parse(read_text_file(config.train.dir / "model/config.json"))["n_layer"] == 2);

  // Persistent memory is exactly 16 bytes per parameter: value, gradient and two moments.
  std::int64_t parameters = 0;
  for (const auto& [name, info] : weights.tensors()) parameters += info.shape.numel();
  const json peaks = lines.back()["peak_bytes"];
  CHECK(peaks["parameters"].get<std::int64_t>() == 4 * parameters);
  CHECK(peaks["gradients"].get<std::int64_t>() == 4 * parameters);
  CHECK(peaks["optimizer"].get<std::int64_t>() == 8 * parameters);
}

TEST_CASE("a run repeats bit for bit on 1, 2 and 3 threads, with and without checkpointing") {
  const TemporaryDirectory folder;
  Config config = tiny_run(folder);
  config.model.dropout = 0.2;
  train(config);
  const std::string expected = model_bytes(config.train.dir);
  const auto losses = metrics_of(config.train.dir);
  for (const std::string checkpointing : {"none", "full", "every 2", "from 1"}) {
    for (const int threads : {1, 2, 3}) {
      config.runtime.threads = threads;
      config.sharding.activation_checkpointing = parse_checkpointing(checkpointing).value();
      config.train.dir = folder / ("run" + checkpointing + std::to_string(threads));
      train(config);
      CHECK(model_bytes(config.train.dir) == expected);
      const auto lines = metrics_of(config.train.dir);
      const auto peak = lines.back()["peak_bytes"]["activations"].get<std::int64_t>();
      const auto kept = losses.back()["peak_bytes"]["activations"].get<std::int64_t>();
      // (The last block alone is recomputed while all others keep theirs: nothing to gain.)
      if (checkpointing == "none") CHECK(peak == kept);
      if (checkpointing == "full" || checkpointing == "every 2") CHECK(peak < kept);
      for (std::size_t i = 0; i < lines.size(); ++i) {
        CHECK(lines[i]["loss"].dump() == losses[i]["loss"].dump());
        CHECK(lines[i]["gradient_norm"].dump() == losses[i]["gradient_norm"].dump());
      }
    }
  }
}

TEST_CASE("every micro-batch of every step has a random position of its own") {
  Config config;
  config.model = {
      .preset = "gpt2-mini", .layers = 1, .heads = 1, .width = 4, .context = 4, .vocab_size = 5};
  config.data = {.batch_size = 6, .sequence_length = 4, .accumulation_steps = 3};
  config.train.seed = 8;
  using Position = std::array<std::uint64_t, 3>;
  const auto dealt = [&](int ranks, std::int64_t accumulation_steps) {
    config.data.accumulation_steps = accumulation_steps;
    config.sharding.strategy = ranks == 1 ? StrategyKind::single : StrategyKind::ddp;
    std::vector<std::vector<Position>> positions(static_cast<std::size_t>(ranks));
    std::vector<std::vector<std::int64_t>> first_rows(static_cast<std::size_t>(ranks));
    run_ranks({.ranks = ranks, .threads = 1}, [&](Communicator& world) {
      TrainingSession session(resolve(config), world);
      const auto rank = static_cast<std::size_t>(world.rank());
      for (const std::int64_t step : {1, 2}) {
        const auto load = [&](std::int64_t, std::int64_t first_row, std::int64_t rows) {
          const RandomPosition& at = context().random();
          positions[rank].push_back({at.seed, at.step, at.micro_batch});
          first_rows[rank].push_back(first_row);
          return Batch{Tensor::zeros({rows, 4}, DType::i32), Tensor::zeros({rows, 4}, DType::i32)};
        };
        const auto all_valid = [](std::int64_t, std::int64_t, std::int64_t rows) {
          return 4 * rows;
        };
        session.step(step, BatchSource(load, all_valid));
      }
    });
    return std::pair(positions, first_rows);
  };
  const auto [alone, alone_rows] = dealt(1, 3);
  CHECK(alone[0] ==
        std::vector<Position>{{8, 1, 0}, {8, 1, 1}, {8, 1, 2}, {8, 2, 0}, {8, 2, 1}, {8, 2, 2}});
  CHECK(alone_rows[0] == std::vector<std::int64_t>{0, 2, 4, 0, 2, 4});
  // Accumulation step i on rank r of 3 computes micro-batch 3 i + r.
  const auto [together, together_rows] = dealt(3, 2);
  CHECK(together[1] == std::vector<Position>{{8, 1, 1}, {8, 1, 4}, {8, 2, 1}, {8, 2, 4}});
  CHECK(together_rows[1] == std::vector<std::int64_t>{1, 4, 1, 4});
  CHECK(together_rows[2] == std::vector<std::int64_t>{2, 5, 2, 5});
}

TEST_CASE("a rank stages its first rows of the next step after it has loaded those of this one") {
  Config config;
  config.model = {
      .preset = "gpt2-mini", .layers = 1, .heads = 1, .width = 4, .context = 4, .vocab_size = 5};
  config.data = {.batch_size = 8, .sequence_length = 4, .accumulation_steps = 2};
  config.sharding.strategy = StrategyKind::ddp;
  using Call = std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t>;
  std::vector<std::vector<Call>> calls(2);
  run_ranks({.ranks = 2, .threads = 1}, [&](Communicator& world) {
    std::vector<Call>& mine = calls[static_cast<std::size_t>(world.rank())];
    const BatchSource source(
        [&mine](std::int64_t step, std::int64_t first, std::int64_t rows) {
          mine.emplace_back("load", step, first, rows);
          return Batch{Tensor::zeros({rows, 4}, DType::i32), Tensor::zeros({rows, 4}, DType::i32)};
        },
        [](std::int64_t, std::int64_t, std::int64_t rows) { return 4 * rows; },
        [&mine](std::int64_t step, std::int64_t first, std::int64_t rows) {
          mine.emplace_back("stage", step, first, rows);
        });
    TrainingSession session(resolve(config), world);
    session.step(1, source);
    session.step(2, source);
  });
  CHECK(calls[0] == std::vector<Call>{{"load", 1, 0, 2},
                                      {"load", 1, 4, 2},
                                      {"stage", 2, 0, 2},
                                      {"load", 2, 0, 2},
                                      {"load", 2, 4, 2},
                                      {"stage", 3, 0, 2}});
  CHECK(calls[1] == std::vector<Call>{{"load", 1, 2, 2},
                                      {"load", 1, 6, 2},
                                      {"stage", 2, 2, 2},
                                      {"load", 2, 2, 2},
                                      {"load", 2, 6, 2},
                                      {"stage", 3, 2, 2}});
}

TEST_CASE("frozen parameters keep their values, weight decay or not, and the others learn") {
  const TemporaryDirectory folder;
  Config config = tiny_run(folder);
  config.train.steps = 1;
  config.optimizer.learning_rate = 0;
  train(config);
  const SafetensorsFile before(config.train.dir / "model/model.safetensors");
  config.train.steps = 5;
  config.optimizer.learning_rate = 1e-2;
  config.model.frozen = "transformer.wte,transformer.h.0.";
  config.train.dir = folder / "frozen";
  train(config);
  const SafetensorsFile after(config.train.dir / "model/model.safetensors");
  const test::Rank rank;
  for (const auto& [name, info] : before.tensors()) {
    CAPTURE(name);
    const bool frozen = name.starts_with("transformer.wte") || name.starts_with("transformer.h.0.");
    CHECK(test::same_bits(before.tensor(name), after.tensor(name)) == frozen);
  }
}

TEST_CASE("another seed gives another run") {
  const TemporaryDirectory folder;
  Config config = tiny_run(folder);
  train(config);
  const auto first = metrics_of(config.train.dir);
  config.train.seed = 2;
  config.train.dir = folder / "other";
  train(config);
  CHECK(metrics_of(config.train.dir)[0]["loss"] != first[0]["loss"]);
}

TEST_CASE("training goes on from a saved model") {
  const TemporaryDirectory folder;
  Config config = tiny_run(folder);
  config.train.steps = 40;
  train(config);
  const double end = metrics_of(config.train.dir).back()["loss"].get<double>();
  config.model.init_from = config.train.dir / "model";
  config.train.dir = folder / "continued";
  config.train.steps = 1;
  train(config);
  CHECK(metrics_of(config.train.dir)[0]["loss"].get<double>() == Approx(end).margin(0.3));
  config.model.layers = 3;
  REQUIRE_THROWS_WITH(train(config),
                      Catch::Contains("model.layers is 3") && Catch::Contains("has 2"));
}

TEST_CASE("a loss that is not finite stops the run and names the step") {
  const TemporaryDirectory folder;
  Config config = tiny_run(folder);
  test::diverge(config);
  REQUIRE_THROWS_WITH(train(config), Catch::Contains("step 2:") && Catch::Contains("nan"));
  CHECK_FALSE(std::filesystem::exists(config.train.dir / "model"));
}

TEST_CASE("a validation loss that is not finite stops the run before it is reported") {
  const TemporaryDirectory folder;
  Config config = tiny_run(folder);
  config.optimizer.learning_rate = 1e30;
  config.optimizer.schedule = ScheduleKind::constant;
  config.train.steps = 1;
  REQUIRE_THROWS_WITH(train(config), Catch::Contains("step 1: the validation loss is"));
  CHECK(metrics_of(config.train.dir).empty());
}

TEST_CASE("bad runs end with one line of advice, before anything is written") {
  const TemporaryDirectory folder;
  const Config good = tiny_run(folder);
  const auto fails_with = [&](auto change, const std::string& message) {
    Config config = good;
    change(config);
    INFO(message);
    REQUIRE_THROWS_WITH(train(config), Catch::Contains(message));
    CHECK_FALSE(std::filesystem::exists(good.train.dir));
  };
  fails_with([](Config& c) { c.data.train = ""; }, "data.train is not set");
  fails_with([](Config& c) { c.data.accumulation_steps = 3; },
             "data.batch_size 4 is not a multiple of data.accumulation_steps 3");
  fails_with([](Config& c) { c.runtime.ranks = 2; },
             "sharding.strategy single is for one rank, and there are 2; choose ddp");
  fails_with([](Config& c) { c.sharding.strategy = StrategyKind::fsdp, c.runtime.ranks = 3; },
             "data.accumulation_steps 1 times the number of ranks, 3 (runtime.ranks)");
  fails_with([](Config& c) { c.sharding.flatten_parameters = true; }, "flatten_parameters");
  fails_with([](Config& c) { c.sharding.buckets = "h.9"; }, "'h.9' is no unit of this model");
  fails_with([](Config& c) { c.model.frozen = "transformer.h.2."; },
             "did you mean 'transformer.h.0.'?");
  fails_with([](Config& c) { c.model.frozen = "transformer."; }, "left to train");
  fails_with([](Config& c) { c.sharding.activation_checkpointing = {.first = 2, .every = 1}; },
             "blocks are 0 to 1");
  fails_with([](Config& c) { c.optimizer.warmup_steps = 13; }, "warmup_steps 13");
  fails_with(
      [](Config& c) {
        c.optimizer.schedule = ScheduleKind::warmup_stable_decay;
        c.optimizer.warmup_steps = 6;
        c.optimizer.decay_steps = 7;
      },
      "optimizer.decay_steps 7");
  fails_with([](Config& c) { c.optimizer.nesterov = true, c.optimizer.name = OptimizerKind::sgd; },
             "nesterov");
  fails_with([](Config& c) { c.data.sequence_length = 25; }, "longer than the model's context");
  fails_with([](Config& c) { c.model.vocab_size = 5; }, "vocabulary mismatch");
  fails_with([](Config& c) { c.model.heads = 3; }, "heads");
  fails_with([&](Config& c) { c.train.dir = folder / "text.txt" / "run"; }, "text.txt");
  fails_with([&](Config& c) { c.model.init_from = folder.path(); }, "config.json");
  write_file_atomically(folder / "empty.bin", "");
  fails_with([&](Config& c) { c.data.train = folder / "empty.bin"; }, "empty.bin");
  fails_with([&](Config& c) { c.data.val = folder / "missing.bin"; }, "missing.bin");
}

TEST_CASE("a token id beyond the model's vocabulary is found before training") {
  const TemporaryDirectory folder;
  Config config = tiny_run(folder);
  std::vector<TokenId> tokens(200, 3);
  tokens[150] = 11;
  write_token_file(folder / "bad.bin", tokens);
  config.model.vocab_size = 11;
  config.data.train = folder / "bad.bin";
  REQUIRE_THROWS_WITH(train(config), Catch::Contains("bad.bin") && Catch::Contains("150"));
}

TEST_CASE("generate: same seed, same text, and greedy repeats the counting it has learned") {
  const TemporaryDirectory folder;
  Config config = tiny_run(folder);
  config.train.steps = 80;
  train(config);
  const auto generated = [&](GenerateOptions options) {
    options.model = config.train.dir;
    options.prompt = "12 13 14";
    std::string text;
    generate(options, [&](std::string_view piece) { text += piece; });
    return text;
  };
  // 60 tokens are more than the context of 24: the cache has to start again on the way.
  const std::string one = generated({.tokens = 60, .seed = 5, .threads = 1});
  CHECK(one.size() == 68);
  CHECK(one.starts_with("12 13 14"));
  CHECK(generated({.tokens = 60, .seed = 5, .threads = 2}) == one);
  CHECK(generated({.tokens = 60, .seed = 6, .threads = 2}) != one);
  CHECK(generated({.sampling = {.temperature = 0.0}, .tokens = 5, .seed = 1}) ==
        generated({.sampling = {.temperature = 0.0}, .tokens = 5, .seed = 2}));
}

}  // namespace tessera
