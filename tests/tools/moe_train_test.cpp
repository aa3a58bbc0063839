// Training a mixture of experts: counts over micro-batches and ranks, biases, losses and settings.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "models/hugging_face.h"
#include "sharding/comm/threads/threads.h"
#include "sharding/plan/footprint.h"
#include "sharding/strategy/strategy.h"
#include "tests/support/findings.h"
#include "tests/support/paths.h"
#include "tests/support/rank.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/parse.h"
#include "tools/config/sharding_options.h"
#include "tools/measure/workload.h"
#include "tools/train/resolve.h"
#include "tools/train/session.h"
#include "tools/train/trainer.h"

namespace tessera {
namespace {

using Catch::Contains;
using nlohmann::json;
using test::metrics_of;
using test::model_bytes;
using test::TemporaryDirectory;

using Biases = std::vector<std::vector<float>>;

ModelConfig tiny_mixture() {
  return {.preset = "qwen3-moe-mini",
          .layers = 2,
          .heads = 2,
          .width = 16,
          .context = 24,
          .head_size = 8,
          .experts = 6,
          .expert_width = 8};
}

Config tiny_moe_run(const TemporaryDirectory& folder) {
  Config config = test::tiny_run(folder);
  config.model = tiny_mixture();
  config.train.steps = 6;
  return config;
}

/// Random tokens, and weights that do not move: what is counted does not depend on rounding.
Config fixed_weights(Balance balance) {
  Config config;
  config.model = tiny_mixture();
  config.model.vocab_size = 61;
  config.moe.balance = balance;
  config.moe.bias_rate = 0.01;
  config.data = {.batch_size = 8, .sequence_length = 19};
  config.optimizer.learning_rate = 0.0;
  return config;
}

Biases biases_of(const Routers& routers) {
  Biases biases;
  for (const RouterBias& bias : routers.biases()) biases.push_back(bias.values);
  return biases;
}

/// The biases after each of `steps` steps.
std::vector<Biases> trained_biases(Config config, const std::string& strategy, int ranks,
                                   std::int64_t accumulation_steps, int steps) {
  config = variant_of(config, strategy);
  config.data.accumulation_steps = accumulation_steps;
  std::vector<Biases> biases;
  run_ranks({.ranks = ranks, .threads = 1}, [&](Communicator& world) {
    TrainingSession session(resolve(config), world);
    const auto source = random_tokens(config.data, session.model().shape().vocab_size);
    for (int step = 1; step <= steps; ++step) {
      session.step(step, source);
      if (world.rank() == 0) biases.push_back(biases_of(*session.model().routers()));
    }
  });
  return biases;
}

/// The same with the whole batch in one forward pass.
std::vector<Biases> biases_of_whole_batches(const Config& config, int steps) {
  const test::Rank rank;
  const ResolvedConfig run = resolve(config);
  const auto model = make_model(run);
  const auto strategy =
      make_single_strategy(model->units(), static_cast<std::uint64_t>(config.train.seed));
  Routers& routers = *model->routers();
  const auto source = random_tokens(config.data, model->shape().vocab_size);
  std::vector<Biases> biases;
  for (int step = 1; step <= steps; ++step) {
    const NoGradient no_gradient;
    routers.start_step({.tokens = tokens_per_step(config.data)});
    const Batch batch = source.load(step, 0, config.data.batch_size);
    model->loss(batch.inputs, batch.targets, 1.0, /*training=*/true);
    routers.finish_step(routers.counts());
    biases.push_back(biases_of(routers));
  }
  return biases;
}

/// Loss, gradient norm and loads of every line, as text.
std::vector<std::string> results_of(const std::filesystem::path& run) {
  std::vector<std::string> results;
  for (const json& line : metrics_of(run)) {
    std::string text;
    for (const char* key :
         {"loss", "gradient_norm", "router_loss", "expert_load", "idle_experts", "val_loss"}) {
      text += line.value(key, json()).dump() + " ";
    }
    results.push_back(text);
  }
  return results;
}

}  // namespace

TEST_CASE("biases have the same bits for every number of ranks and micro-batches", "[cpu]") {
  const Config config = fixed_weights(Balance::bias);
  constexpr int kSteps = 3;
  const std::vector<Biases> expected = biases_of_whole_batches(config, kSteps);
  const auto moved = [](float bias) { return bias != 0.0f; };
  for (const std::vector<float>& layer : expected[0]) {
    CHECK(std::any_of(layer.begin(), layer.end(), moved));
  }
  CHECK(trained_biases(config, "ddp", 1, 1, kSteps) == expected);
  CHECK(trained_biases(config, "ddp", 1, 4, kSteps) == expected);
  CHECK(trained_biases(config, "fsdp", 2, 2, kSteps) == expected);
  CHECK(trained_biases(config, "zero3", 4, 1, kSteps) == expected);
  Config recomputed = config;
  recomputed.sharding.activation_checkpointing = {.first = 0, .every = 1};
  CHECK(trained_biases(recomputed, "fsdp_flat", 2, 1, kSteps) == expected);
}

TEST_CASE("lagged losses are those of whole batches for every number of ranks and micro-batches",
          "[cpu]") {
  struct Results {
    double loss, router_loss, norm;
  };
  const auto second_step = [](const std::string& strategy, int ranks, std::int64_t accumulation) {
    Config config = variant_of(fixed_weights(Balance::lagged), strategy);
    config.moe.loss_coefficient = 0.5;
    config.moe.z_loss = 0.01;
    config.data.accumulation_steps = accumulation;
    Results results{};
    run_ranks({.ranks = ranks, .threads = 1}, [&](Communicator& world) {
      TrainingSession session(resolve(config), world);
      const auto source = random_tokens(config.data, session.model().shape().vocab_size);
      session.step(1, source);
      const StepResult result = session.step(2, source);
      if (world.rank() == 0) results = {result.loss, *result.router_loss, result.gradient_norm};
    });
    return results;
  };
  const Results expected = second_step("ddp", 1, 1);
  CHECK(expected.router_loss > 0.5 * 2);  // the coefficient times k, and the z-loss
  for (const auto& [ranks, accumulation] : {std::pair{1, 4}, {2, 2}, {4, 1}}) {
    CAPTURE(ranks, accumulation);
    const Results found = second_step("fsdp", ranks, accumulation);
    CHECK(found.loss == Approx(expected.loss).epsilon(1e-6));
    CHECK(found.router_loss == Approx(expected.router_loss).epsilon(1e-6));
    CHECK(found.norm == Approx(expected.norm).epsilon(1e-5));
  }
}

TEST_CASE("two ranks train a mixture of experts by every strategy to the same bits", "[cpu]") {
  const TemporaryDirectory folder;
  Config config = tiny_moe_run(folder);
  config.moe.balance = GENERATE(Balance::bias, Balance::lagged);
  config.moe.bias_rate = 0.01;
  config.moe.z_loss = 1e-3;
  config.data.accumulation_steps = 2;
  config.runtime.ranks = 2;
  config.runtime.threads = 1;
  std::vector<std::string> results;
  std::string model;
  for (const std::string& strategy : strategy_variants()) {
    INFO(strategy);
    Config one = variant_of(config, strategy);
    if (strategy == "fsdp") one.sharding.activation_checkpointing = {.first = 0, .every = 1};
    one.train.dir = folder / strategy;
    train(one);
    if (results.empty()) results = results_of(one.train.dir), model = model_bytes(one.train.dir);
    CHECK(results_of(one.train.dir) == results);
    CHECK(model_bytes(one.train.dir) == model);
  }
  REQUIRE(results.size() == 6);
}

TEST_CASE("a trained mixture of experts goes on with its biases, and is evaluated with them",
          "[cpu]") {
  const TemporaryDirectory folder;
  Config config = tiny_moe_run(folder);
  config.moe.bias_rate = 0.05;
  train(config);
  const Config written = load_config(config.train.dir / "config.yaml");
  CHECK(written.moe.balance == Balance::bias);
  const auto trained = make_pretrained(config.train.dir);
  CHECK(trained->routers()->has_biases());

  Config next = tiny_moe_run(folder);
  next.model = {.init_from = config.train.dir / "model"};
  next.optimizer.learning_rate = 0.0;
  next.moe.bias_rate = 0.0;
  next.train.steps = 1;
  next.train.dir = folder / "next";
  train(next);
  CHECK(load_config(next.train.dir / "config.yaml").moe.balance == Balance::bias);
  CHECK(metrics_of(next.train.dir)[0]["val_loss"] ==
        metrics_of(config.train.dir).back()["val_loss"]);
  CHECK(model_bytes(next.train.dir) == model_bytes(config.train.dir));

  // Transformers' files have no biases.
  Config tuned;
  tuned.model.init_from =
      std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/golden/qwen3_moe/typical";
  tuned.data.sequence_length = 16;
  CHECK(resolve(tuned).config.moe.balance == Balance::none);
  tuned.moe.balance = Balance::bias;
  CHECK(make_model(resolve(tuned))->routers()->has_biases());
}

TEST_CASE("the routers' losses change gradients but not the loss, and f16 reports them unscaled",
          "[cpu]") {
  const auto first_step = [](double z_loss, DType dtype) {
    Config config = fixed_weights(Balance::none);
    config.moe.z_loss = z_loss;
    config.runtime.compute_dtype = dtype;
    StepResult result;
    run_ranks({.ranks = 1, .threads = 1}, [&](Communicator& world) {
      TrainingSession session(resolve(config), world);
      result = session.step(1, random_tokens(config.data, session.model().shape().vocab_size));
    });
    return result;
  };
  const StepResult without = first_step(0.0, DType::f32), with = first_step(0.3, DType::f32);
  CHECK(without.router_loss == 0.0);
  CHECK(with.loss == without.loss);
  CHECK(with.gradient_norm != without.gradient_norm);
  // Logits begin near 0, so their logsumexp is about log 6.
  CHECK(*with.router_loss == Approx(0.3 * std::log(6.0) * std::log(6.0)).epsilon(0.02));
  const StepResult half = first_step(0.3, DType::f16);
  CHECK(*half.router_loss == Approx(*with.router_loss).epsilon(1e-3));
  CHECK(half.gradient_norm == Approx(with.gradient_norm).epsilon(1e-2));
}

TEST_CASE("a step that f16 skips moves no bias and has no loads", "[cpu]") {
  Config config = fixed_weights(Balance::bias);
  config.runtime.compute_dtype = DType::f16;
  run_ranks({.ranks = 1, .threads = 1}, [&](Communicator& world) {
    TrainingSession session(resolve(config), world);
    const auto source = random_tokens(config.data, session.model().shape().vocab_size);
    const Tensor& weight = session.strategy().shards()[0].data;
    const Tensor original = weight.clone();
    const auto overwrite = [&](const Tensor& with) {
      session.strategy().write_masters([&] { weight.copy_from(with); });
    };
    overwrite(Tensor::full(weight.shape(), DType::f32, 1e9));  // infinite in f16
    const StepResult skipped = session.step(1, source);
    CHECK_FALSE(std::isfinite(skipped.gradient_norm));
    CHECK(skipped.loads.imbalance.empty());
    CHECK(biases_of(*session.model().routers()) == Biases(2, std::vector<float>(6, 0.0f)));
    overwrite(original);
    CHECK(session.step(2, source).loads.imbalance.size() == 2);
    CHECK(biases_of(*session.model().routers())[0] != std::vector<float>(6, 0.0f));
  });
}

TEST_CASE("loads are in the metrics, and force_balance makes them equal", "[cpu]") {
  const TemporaryDirectory folder;
  Config config = tiny_moe_run(folder);
  config.train.steps = 1;
  config.data.sequence_length = 24;  // 96 tokens with two experts each, of six
  train(config);
  const json line = metrics_of(config.train.dir)[0];
  REQUIRE(line["expert_load"].size() == 2);
  CHECK(line["expert_load"][0].get<double>() > 1.0);
  config.moe.force_balance = true;
  config.train.dir = folder / "forced";
  train(config);
  const json forced = metrics_of(config.train.dir)[0];
  CHECK(forced["expert_load"] == json{1.0, 1.0});
  CHECK(forced["idle_experts"] == 0);
}

TEST_CASE("the traffic of the counts is as predicted", "[cpu]") {
  const TemporaryDirectory folder;
  Config config = variant_of(tiny_moe_run(folder), "zero1");
  config.runtime.ranks = 2;
  config.train.steps = 2;
  config.train.eval_every = 0;
  train(config);
  std::int64_t predicted = 0;
  run_ranks({.ranks = 1}, [&](Communicator&) {
    const ResolvedConfig run = resolve(config);
    CHECK(run.sharding.counters == 2 * 6);
    const auto model = make_model(run);
    for (const int rank : {0, 1}) {
      const Footprint one = footprint_of(model->units(), run.sharding, 2, rank);
      predicted = std::max(predicted, one.bytes_sent);
    }
  });
  for (const json& line : metrics_of(config.train.dir)) CHECK(line["bytes_sent"] == predicted);
}

TEST_CASE("settings of experts are refused where there are none") {
  const auto refusal = [](const std::vector<std::string>& overrides) {
    try {
      resolve(parse_config("data: {sequence_length: 16}", "run.yaml", overrides));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  CHECK(refusal({"moe.balance=none"}) == "no error");
  CHECK(refusal({"moe.balance=auto", "moe.bias_rate=0.1"}) == "no error");
  CHECK_THAT(refusal({"moe.balance=bias"}),
             Contains("moe.balance is bias, but the model has no experts; leave the key out"));
  CHECK_THAT(refusal({"moe.z_loss=0.1"}), Contains("moe.z_loss is 0.1"));
  CHECK_THAT(refusal({"moe.force_balance=true"}), Contains("moe.force_balance is true"));
  CHECK_THAT(refusal({"model.experts=4"}), Contains("model.experts is 4"));
  CHECK_THAT(refusal({"moe.balance=equal"}),
             Contains("moe.balance") && Contains("auto") && Contains("lagged"));
  CHECK_THAT(refusal({"model.preset=qwen3-moe-mini", "model.experts=2000"}),
             Contains("from 0 to 1024"));
  CHECK_THAT(refusal({"model.preset=qwen3-moe-mini", "model.experts_per_token=9"}),
             Contains("experts_per_token is 9; expected 1 to the number of experts, 8"));
  CHECK_THAT(refusal({"model.preset=qwen3-moe-mini", "moe.bias_rate=-1"}), Contains(">= 0"));
}

}  // namespace tessera
