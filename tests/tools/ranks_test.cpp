// Whole runs on several ranks: every strategy learns as one rank does.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "sharding/plan/footprint.h"
#include "tests/support/findings.h"
#include "tests/tools/sessions.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/parse.h"
#include "tools/config/sharding_options.h"
#include "tools/train/trainer.h"

namespace tessera {

using nlohmann::json;
using test::metrics_of;
using test::model_bytes;
using test::results_of;
using test::saved_weights;
using test::TemporaryDirectory;
using test::tiny_run;

namespace {

Config ranked(Config config, const std::string& strategy, int ranks,
              const TemporaryDirectory& folder) {
  config = variant_of(config, strategy);
  config.runtime.ranks = ranks;
  config.runtime.threads = 1;
  config.train.dir = folder / (strategy + std::to_string(ranks));
  return config;
}

}  // namespace

TEST_CASE("two ranks train by every strategy to the same metrics and the same saved model") {
  const TemporaryDirectory folder;
  Config config = tiny_run(folder);
  config.model.dropout = 0.1;
  const Config ddp = ranked(config, "ddp", 2, folder);
  train(ddp);
  REQUIRE(results_of(ddp.train.dir).size() == 12);
  for (const std::string& strategy : strategy_variants()) {
    INFO(strategy);
    const Config other = ranked(config, strategy, 2, folder);
    if (strategy != "ddp") train(other);
    CHECK(results_of(other.train.dir) == results_of(ddp.train.dir));
    CHECK(model_bytes(other.train.dir) == model_bytes(ddp.train.dir));
  }
}

TEST_CASE("sharding.rules: small parameters whole, the others by fsdp, with ddp's bits") {
  const TemporaryDirectory folder;
  const Config ddp = ranked(tiny_run(folder), "ddp", 2, folder);
  train(ddp);
  Config mixed = ranked(tiny_run(folder), "fsdp", 2, folder);
  mixed.sharding.rules = parse_placement_rules("*.bias -> ddp, *.ln_* -> ddp");
  train(mixed);
  CHECK(results_of(mixed.train.dir).size() == 12);
  CHECK(results_of(mixed.train.dir) == results_of(ddp.train.dir));
  // Both files have the same tensors, in another order.
  CHECK(saved_weights(mixed.train.dir) == saved_weights(ddp.train.dir));
  // The written configuration starts the same run again.
  const Config written = load_config(mixed.train.dir / "config.yaml", {});
  CHECK(written.sharding.rules == mixed.sharding.rules);
  // Every parameter that the rules name is whole on each rank.
  const auto model = make_model(resolve(mixed));
  const Plan plan = make_plan(model->units(), sharding_options(written), {.ranks = 2});
  REQUIRE(plan.groups.size() == 2);
  for (const GroupPlan& group : plan.groups) {
    const bool whole = group.placement.name == "ddp";
    for (const BucketLayout& bucket : group.buckets()) {
      for (const Parameter& parameter : bucket.parameters) {
        const std::string& name = parameter.name();
        const bool named = name.ends_with(".bias") || name.find(".ln_") != std::string::npos;
        CHECK(named == whole);
      }
    }
  }
}

TEST_CASE("two ranks are one rank with two micro-batches, to rounding, dropout included") {
  const TemporaryDirectory folder;
  Config config = tiny_run(folder);
  config.model.dropout = 0.1;
  Config alone = config;
  alone.data.accumulation_steps = 2;
  train(alone);
  const Config two = ranked(config, "fsdp", 2, folder);
  train(two);
  const auto expected = metrics_of(alone.train.dir);
  const auto found = metrics_of(two.train.dir);
  CHECK(found[0]["loss"].get<double>() == Approx(expected[0]["loss"].get<double>()).epsilon(1e-6));
  CHECK(found[0]["gradient_norm"].get<double>() ==
        Approx(expected[0]["gradient_norm"].get<double>()).epsilon(1e-6));
  CHECK(found.back()["val_loss"].get<double>() ==
        Approx(expected.back()["val_loss"].get<double>()).epsilon(1e-4));
}

TEST_CASE("ranks go on from a saved model, each with its own part of it") {
  const TemporaryDirectory folder;
  Config config = tiny_run(folder);
  config.train.steps = 1;
  train(config);
  config.model.init_from = config.train.dir / "model";
  config.optimizer.learning_rate = 0.0;
  const Config one = ranked(config, "ddp", 1, folder);
  train(one);
  for (const std::string strategy : {"zero1", "zero3", "fsdp", "fsdp_flat", "hsdp"}) {
    INFO(strategy);
    const Config four = ranked(config, strategy, 4, folder);
    train(four);
    CHECK(model_bytes(four.train.dir) == model_bytes(config.train.dir));
    CHECK(metrics_of(four.train.dir)[0]["loss"].get<double>() ==
          Approx(metrics_of(one.train.dir)[0]["loss"].get<double>()).epsilon(1e-6));
  }
}

TEST_CASE("every rank gets the same validation loss, and evaluation changes no bit of training") {
  const Config config = variant_of(workload("tiny", {}), "fsdp");
  std::vector<std::vector<float>> losses;  // without and with evaluation
  std::vector<float> validations(4);
  for (const bool evaluates : {false, true}) {
    losses.emplace_back(4);
    test::with_session(
        config, 4, [&](TrainingSession& session, const BatchSource& source, Communicator& world) {
          const auto rank = static_cast<std::size_t>(world.rank());
          for (int step = 1; step <= 3; ++step) {
            losses.back()[rank] = session.step(step, source).loss;
            if (evaluates) validations[rank] = session.evaluate(2 * config.data.batch_size, source);
          }
        });
  }
  CHECK(losses[0] == std::vector<float>(4, losses[0][0]));
  CHECK(losses[1] == losses[0]);
  CHECK(validations == std::vector<float>(4, validations[0]));
  // Untrained on these tokens, it can but guess among 257.
  CHECK(validations[0] == Approx(std::log(257.0)).margin(0.05));
}

TEST_CASE("metrics of two ranks: traffic as predicted, per step, evaluation left out") {
  const std::string strategy = GENERATE("zero1", "fsdp");
  const TemporaryDirectory folder;
  Config config = ranked(tiny_run(folder), strategy, 2, folder);
  config.train.log_every = 4;
  // fsdp: after an evaluation a step finds other buckets in the slots.
  if (strategy == "fsdp") config.train.eval_every = 0;
  train(config);
  std::int64_t predicted = 0;
  run_ranks({.ranks = 1}, [&](Communicator&) {
    const auto model = make_model(resolve(config));
    for (const int rank : {0, 1}) {
      const Footprint one = footprint_of(model->units(), sharding_options(config), 2, rank);
      predicted = std::max(predicted, one.bytes_sent);
    }
  });
  const auto lines = metrics_of(config.train.dir);
  REQUIRE(lines.size() == (strategy == "zero1" ? 5 : 4));  // steps 1, 4, 6 (evaluation), 8 and 12
  for (const json& line : lines) {
    CHECK(line["bytes_sent"].get<std::int64_t>() == predicted);
    CHECK(line["communication_ms"].get<double>() > 0.0);
    CHECK(line["exposed_communication_ms"].get<double>() > 0.0);
    CHECK(line["exposed_communication_ms"].get<double>() < line["step_ms"].get<double>());
  }
}

TEST_CASE("a rank that fails stops the run with its number and reason") {
  const TemporaryDirectory folder;
  Config config = ranked(tiny_run(folder), "fsdp", 2, folder);
  test::diverge(config);
  REQUIRE_THROWS_WITH(train(config), Catch::StartsWith("rank ") && Catch::Contains("step 2:"));
  CHECK_FALSE(std::filesystem::exists(config.train.dir / "model"));
}

TEST_CASE("f16 skips steps that overflow, and gives up when the loss scale is at its end") {
  Config config = variant_of(workload("tiny", {}), "fsdp");
  config.runtime.compute_dtype = DType::f16;
  test::Findings findings;
  std::vector<int> skipped(2);
  const auto body = [&](TrainingSession& session, const BatchSource& source, Communicator& world) {
    const Shard& shard = session.strategy().shards()[0];
    session.strategy().write_masters([&] {  // infinite in f16
      shard.data.copy_from(Tensor::full(shard.data.shape(), DType::f32, 1e9));
    });
    for (int step = 1; step <= 20; ++step) {
      const StepResult result = session.step(step, source);
      findings.expect(!std::isfinite(result.gradient_norm), "every step overflows");
      findings.expect(shard.data.to_vector<float>()[0] == 1e9f,
                      "a skipped step leaves the weights");
      ++skipped[static_cast<std::size_t>(world.rank())];
    }
  };
  // 2^16 can be halved 16 times.
  REQUIRE_THROWS_WITH(test::with_session(config, 2, body), Catch::Contains("step 17:"));
  CHECK(skipped == std::vector<int>{16, 16});
  CHECK(findings.wrong() == std::vector<std::string>{});
}

}  // namespace tessera
