// Training a mixture of experts: counts over micro-batches and ranks, biases, losses and settings.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "models/hugging_face.h"
#include "sharding/strategy/strategy.h"
#include "tests/support/error_of.h"
#include "tests/support/paths.h"
#include "tests/support/rank.h"
#include "tests/tools/sessions.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/parse.h"
#include "tools/config/sharding_options.h"
#include "tools/train/trainer.h"

namespace tessera {
namespace {

using Catch::Contains;
using nlohmann::json;
using test::metrics_of;
using test::model_bytes;
using test::results_of;
using test::TemporaryDirectory;

using Biases = std::vector<std::vector<float>>;

Config tiny_moe_run(const TemporaryDirectory& folder) {
  Config config = test::tiny_run(folder);
  config.model = test::tiny_model("qwen3-moe-mini");
  config.train.steps = 6;
  return config;
}

/// Random tokens, and weights that do not move: what is counted does not depend on rounding.
Config fixed_weights(Balance balance) {
  Config config;
  config.model = test::tiny_model("qwen3-moe-mini");
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
  const auto after = [&](TrainingSession& session, Communicator& world, int) {
    if (world.rank() == 0) biases.push_back(biases_of(*session.model().routers()));
  };
  test::train_session(config, ranks, {.count = steps, .after = after});
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
  const auto trained = [](const std::string& strategy, int ranks, std::int64_t accumulation) {
    Config config = variant_of(fixed_weights(Balance::lagged), strategy);
    config.moe.loss_coefficient = 0.5;
    config.moe.z_loss = 0.01;
    config.data.accumulation_steps = accumulation;
    return test::train_session(config, ranks);
  };
  const test::TrainedSession expected = trained("ddp", 1, 1);
  CHECK(expected.router_losses[1] > 0.5 * 2);  // the coefficient times k, and the z-loss
  for (const auto& [ranks, accumulation] : {std::pair{1, 4}, {2, 2}, {4, 1}}) {
    CAPTURE(ranks, accumulation);
    const test::TrainedSession found = trained("fsdp", ranks, accumulation);
    CHECK(found.losses[1] == Approx(expected.losses[1]).epsilon(1e-6));
    CHECK(found.router_losses[1] == Approx(expected.router_losses[1]).epsilon(1e-6));
    CHECK(found.norms[1] == Approx(expected.norms[1]).epsilon(1e-5));
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
    return test::train_session(config, 1, {.count = 1});
  };
  const test::TrainedSession without = first_step(0.0, DType::f32),
                             with = first_step(0.3, DType::f32);
  CHECK(without.router_losses[0] == 0.0);
  CHECK(with.losses == without.losses);
  CHECK(with.norms != without.norms);
  // Logits begin near 0, so their logsumexp is about log 6.
  CHECK(with.router_losses[0] == Approx(0.3 * std::log(6.0) * std::log(6.0)).epsilon(0.02));
  const test::TrainedSession half = first_step(0.3, DType::f16);
  CHECK(half.router_losses[0] == Approx(with.router_losses[0]).epsilon(1e-3));
  CHECK(half.norms[0] == Approx(with.norms[0]).epsilon(1e-2));
}

TEST_CASE("a step that f16 skips moves no bias and has no loads", "[cpu]") {
  Config config = fixed_weights(Balance::bias);
  config.runtime.compute_dtype = DType::f16;
  test::with_session(
      config, 1, [](TrainingSession& session, const BatchSource& source, Communicator&) {
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

TEST_CASE("settings of experts are refused where there are none") {
  const auto refusal = [](const std::vector<std::string>& overrides) {
    return test::error_of(
        [&] { resolve(parse_config("data: {sequence_length: 16}", "run.yaml", overrides)); });
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
