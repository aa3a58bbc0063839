// Runs on a GPU: the same programs and files, and the results of the CPU to rounding.
#include <catch2/catch.hpp>

#include "runtime/device.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/parse.h"
#include "tools/generate/generate.h"
#include "tools/train/trainer.h"

namespace tessera {

using Catch::Contains;
using test::metrics_of;
using test::model_bytes;
using test::TemporaryDirectory;

namespace {

constexpr int kSteps = 10;

/// A few steps on few tokens.
Config short_run(const TemporaryDirectory& folder, const std::string& device) {
  Config config = test::tiny_run(folder);
  config.model.context = config.data.sequence_length = 8;
  config.data.batch_size = 2;
  config.train.steps = kSteps;
  config.train.eval_every = kSteps;
  config.train.eval_batches = 1;
  config.train.dir = folder / device;
  config.runtime.device = parse_device(device).value();
  return config;
}

/// Trains on both devices and compares the lines of metrics. Returns the GPU's.
std::vector<nlohmann::json> check_same_run(const Config& on_cpu, const Config& on_gpu) {
  train(on_cpu);
  train(on_gpu);
  const auto expected = metrics_of(on_cpu.train.dir);
  const auto found = metrics_of(on_gpu.train.dir);
  REQUIRE(found.size() == kSteps);
  for (std::size_t i = 0; i < kSteps; ++i) {
    for (const char* key : {"loss", "gradient_norm"}) {
      CAPTURE(i, key);
      CHECK(found[i][key].get<double>() == Approx(expected[i][key].get<double>()).epsilon(1e-5));
    }
  }
  CHECK(found.back()["val_loss"].get<double>() ==
        Approx(expected.back()["val_loss"].get<double>()).epsilon(1e-5));
  // The bytes in use are counted on a GPU as on the CPU.
  for (const char* part : {"parameters", "gradients", "optimizer"}) {
    CHECK(found.back()["peak_bytes"][part] == expected.back()["peak_bytes"][part]);
  }
  return found;
}

}  // namespace

TEST_CASE("a run on a GPU is the CPU's run, to rounding") {
  const TemporaryDirectory folder;
  const Config on_cpu = short_run(folder, "cpu");
  Config on_gpu = short_run(folder, "cuda:0");
  on_gpu.train.measure_matmul_rate = true;
  const auto found = check_same_run(on_cpu, on_gpu);
  const auto& share = found.back()["matmul_fraction"];
  CHECK((share.is_null() || (share.get<double>() > 0.0 && share.get<double>() <= 1.0)));
}

TEST_CASE("a Llama and a Qwen3 on a GPU are the CPU's, to rounding") {
  const TemporaryDirectory folder;
  Config on_cpu = short_run(folder, "cpu"), on_gpu = short_run(folder, "cuda:0");
  const std::string preset = GENERATE("llama3-mini", "qwen3-mini");
  CAPTURE(preset);
  for (Config* config : {&on_cpu, &on_gpu}) {
    config->model = test::tiny_model(preset, 8);
  }
  check_same_run(on_cpu, on_gpu);
}

TEST_CASE("a mixture of experts on a GPU is the CPU's, to rounding, with the same loads") {
  const TemporaryDirectory folder;
  Config on_cpu = short_run(folder, "cpu"), on_gpu = short_run(folder, "cuda:0");
  const Balance balance = GENERATE(Balance::bias, Balance::lagged);
  for (Config* config : {&on_cpu, &on_gpu}) {
    config->model = test::tiny_model("qwen3-moe-mini", 8);
    config->moe = {.balance = balance, .bias_rate = 0.01, .loss_coefficient = 0.1, .z_loss = 1e-3};
  }
  const auto found = check_same_run(on_cpu, on_gpu);
  const auto expected = metrics_of(on_cpu.train.dir);
  for (std::size_t i = 0; i < kSteps; ++i) {
    CAPTURE(i);
    CHECK(found[i]["expert_load"] == expected[i]["expert_load"]);
    CHECK(found[i]["router_loss"].get<double>() ==
          Approx(expected[i]["router_loss"].get<double>()).epsilon(1e-5));
  }
}

TEST_CASE("a Llama 4 on a GPU is the CPU's, to rounding, with chunks and packed documents") {
  const TemporaryDirectory folder;
  Config on_cpu = short_run(folder, "cpu"), on_gpu = short_run(folder, "cuda:0");
  for (Config* config : {&on_cpu, &on_gpu}) {
    config->model = test::tiny_model("llama4-mini", 8);
    config->model.layers = config->model.experts = 4;
    config->model.attention_chunk = 3;
    config->data.document_token = " ";
    config->optimizer.epsilon = 1e-4;  // queries of few keys have gradients near rounding
    config->moe.balance = Balance::bias;
  }
  check_same_run(on_cpu, on_gpu);
}

TEST_CASE("a run on a GPU repeats bit for bit, on one rank and on two") {
  const TemporaryDirectory folder;
  Config config = short_run(folder, "cuda:0");
  config.model.dropout = 0.2;
  for (const int ranks : {1, 2}) {
    config.runtime.ranks = ranks;
    config.sharding.strategy = ranks == 1 ? StrategyKind::single : StrategyKind::fsdp;
    config.train.dir = folder / ("first" + std::to_string(ranks));
    train(config);
    const std::string expected = model_bytes(config.train.dir);
    config.train.dir = folder / ("second" + std::to_string(ranks));
    train(config);
    CHECK(model_bytes(config.train.dir) == expected);
  }
}

TEST_CASE("sharding does not change a bit of a run on GPUs") {
  const TemporaryDirectory folder;
  Config config = short_run(folder, "cuda");
  config.model.dropout = 0.2;
  config.runtime.ranks = 2;
  std::vector<double> losses;
  std::string model;
  for (const char* strategy : {"ddp", "zero3", "fsdp"}) {
    CAPTURE(strategy);
    config.sharding.strategy = strategy_from_name(strategy);
    config.train.dir = folder / strategy;
    train(config);
    std::vector<double> found;
    for (const auto& step : metrics_of(config.train.dir)) found.push_back(step["loss"]);
    if (losses.empty()) {
      losses = found;
      model = model_bytes(config.train.dir);
    }
    REQUIRE(found.size() == kSteps);
    CHECK(found == losses);
    CHECK(model_bytes(config.train.dir) == model);
  }
}

TEST_CASE("training goes on, and text is written, on the other device than before") {
  const TemporaryDirectory folder;
  Config config = short_run(folder, "cuda:0");
  train(config);
  Config next = short_run(folder, "cpu");
  next.model.init_from = config.train.dir / "model";
  next.optimizer.learning_rate = 0.0;
  train(next);
  CHECK(model_bytes(next.train.dir) == model_bytes(config.train.dir));
  std::vector<std::string> texts;
  for (const std::string device : {"cpu", "cuda"}) {
    std::string text;
    generate({.model = config.train.dir,
              .prompt = "1 2 ",
              .sampling = {.temperature = 0.0},
              .tokens = 4,
              .device = device},
             [&](std::string_view piece) { text += piece; });
    texts.push_back(text);
  }
  CHECK(texts[0] == texts[1]);
}

TEST_CASE("a GPU that is not there is one line") {
  const TemporaryDirectory folder;
  const Config trained = short_run(folder, "cpu");
  train(trained);
  const Config config = short_run(folder, "cuda:99");
  CHECK_THROWS_WITH(train(config), Contains("device cuda:99 is not available") && !Contains("\n"));
  CHECK_THROWS_WITH(generate({.model = trained.train.dir, .prompt = "1", .device = "gpu"}, {}),
                    Contains("expected auto, cpu, cuda or cuda:N, got 'gpu'"));
}

}  // namespace tessera
