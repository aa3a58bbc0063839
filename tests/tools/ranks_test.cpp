// Whole runs on several ranks: every strategy learns as one rank does.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>

#include "runtime/safetensors.h"
#include "sharding/comm/threads/threads.h"
#include "sharding/plan/footprint.h"
#include "tests/support/findings.h"
#include "tests/support/rank.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/parse.h"
#include "tools/config/sharding_options.h"
#include "tools/generate/generate.h"
#include "tools/measure/workload.h"
#include "tools/train/resolve.h"
#include "tools/train/session.h"
#include "tools/train/trainer.h"

namespace tessera {

using nlohmann::json;
using test::metrics_of;
using test::model_bytes;
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

/// The saved model's tensors by name.
std::map<std::string, std::vector<float>> saved_weights(const std::filesystem::path& run) {
  const test::Rank rank;  // reading a tensor needs a stream
  const SafetensorsFile file(run / "model/model.safetensors");
  std::map<std::string, std::vector<float>> weights;
  for (const auto& [name, info] : file.tensors()) {
    weights[name] = file.tensor(name).to_vector<float>();
  }
  return weights;
}

/// Loss, validation loss and gradient norm of every line, as text.
std::vector<std::string> results_of(const std::filesystem::path& run) {
  std::vector<std::string> results;
  for (const json& line : metrics_of(run)) {
    results.push_back(line["loss"].dump() + " " + line["gradient_norm"].dump() + " " +
                      line.value("val_loss", json()).dump());
  }
  return results;
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

TEST_CASE("first-step gradients of two ranks are those of two micro-batches, within 1e-6") {
  const auto gradients_of = [](int ranks, std::int64_t accumulation_steps) {
    Config config = workload("tiny", {});
    config.sharding.strategy = StrategyKind::ddp;
    config.data.accumulation_steps = accumulation_steps;
    std::map<std::string, std::vector<float>> gradients;
    run_ranks({.ranks = ranks, .threads = 1}, [&](Communicator& world) {
      TrainingSession session(resolve(config), world);
      session.step(1, random_tokens(config.data, session.model().shape().vocab_size));
      if (world.rank() != 0) return;
      for (const Shard& shard : session.strategy().shards()) {
        gradients[shard.parameter.name()] = shard.gradient.to_vector<float>();
      }
    });
    return gradients;
  };
  const auto alone = gradients_of(1, 2);
  for (const auto& [name, together] : gradients_of(2, 1)) {
    INFO(name);
    double largest = 0.0;
    double difference = 0.0;
    for (std::size_t i = 0; i < together.size(); ++i) {
      const double expected = alone.at(name)[i];
      largest = std::max(largest, std::abs(expected));
      difference = std::max(difference, std::abs(together[i] - expected));
    }
    CHECK(largest > 0.0);
    CHECK(difference <= 1e-6 * largest);
  }
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
  for (const std::string strategy : {"zero1", "zero3", "fsdp", "fsdp_flat"}) {
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
    run_ranks({.ranks = 4, .threads = 1}, [&](Communicator& world) {
      TrainingSession session(resolve(config), world);
      const auto source = random_tokens(config.data, session.model().shape().vocab_size);
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

TEST_CASE("a model saved by sharded ranks writes text") {
  const TemporaryDirectory folder;
  const Config config = ranked(tiny_run(folder), "hsdp", 4, folder);
  train(config);
  std::string text;
  generate({.model = config.train.dir, .prompt = "1", .tokens = 5},
           [&](std::string_view piece) { text += piece; });
  CHECK(text.size() == 6);
}

TEST_CASE("a rank that fails stops the run with its number and reason") {
  const TemporaryDirectory folder;
  Config config = ranked(tiny_run(folder), "fsdp", 2, folder);
  config.optimizer.learning_rate = 1e30;
  config.optimizer.schedule = ScheduleKind::constant;
  config.data.val.clear();
  REQUIRE_THROWS_WITH(train(config), Catch::StartsWith("rank ") && Catch::Contains("step 2:"));
  CHECK_FALSE(std::filesystem::exists(config.train.dir / "model"));
}

TEST_CASE("f16 reports the loss and the norm unscaled") {
  const auto first_step = [](const std::string& dtype) {
    Config config = variant_of(workload("tiny", {}), "fsdp");
    config.runtime.compute_dtype = dtype_from_name(dtype);
    StepResult result;
    run_ranks({.ranks = 2, .threads = 1}, [&](Communicator& world) {
      TrainingSession session(resolve(config), world);
      const StepResult here =
          session.step(1, random_tokens(config.data, session.model().shape().vocab_size));
      if (world.rank() == 0) result = here;
    });
    return result;
  };
  const StepResult full = first_step("f32");
  const StepResult half = first_step("f16");
  CHECK(half.loss == Approx(full.loss).epsilon(1e-3));
  CHECK(half.gradient_norm == Approx(full.gradient_norm).epsilon(1e-2));
  CHECK(half.gradient_norm != full.gradient_norm);
}

TEST_CASE("f16 divides the scale out of the update") {
  // Gradient descent follows the gradient's size, which AdamW forgets; clipping is off.
  const auto loss_after_updates = [](const std::string& dtype) {
    Config config = variant_of(workload("tiny", {}), "ddp");
    config.runtime.compute_dtype = dtype_from_name(dtype);
    config.optimizer = {
        .name = OptimizerKind::sgd, .learning_rate = 1.0, .schedule = ScheduleKind::constant};
    config.optimizer.clip_norm = 0.0;
    std::vector<float> losses;
    run_ranks({.ranks = 1, .threads = 1}, [&](Communicator& world) {
      TrainingSession session(resolve(config), world);
      const auto source = random_tokens(config.data, session.model().shape().vocab_size);
      for (int i = 0; i < 4; ++i) losses.push_back(session.step(1, source).loss);
    });
    CHECK(losses.back() < losses.front() - 0.1f);  // the same batch again and again
    return losses.back();
  };
  CHECK(loss_after_updates("f16") == Approx(loss_after_updates("f32")).epsilon(1e-3));
}

TEST_CASE("f16 skips steps that overflow, and gives up when the loss scale is at its end") {
  Config config = variant_of(workload("tiny", {}), "fsdp");
  config.runtime.compute_dtype = DType::f16;
  test::Findings findings;
  std::vector<int> skipped(2);
  const auto body = [&](Communicator& world) {
    TrainingSession session(resolve(config), world);
    const Shard& shard = session.strategy().shards()[0];
    session.strategy().write_masters([&] {  // infinite in f16
      shard.data.copy_from(Tensor::full(shard.data.shape(), DType::f32, 1e9));
    });
    const auto source = random_tokens(config.data, session.model().shape().vocab_size);
    for (int step = 1; step <= 20; ++step) {
      const StepResult result = session.step(step, source);
      findings.expect(!std::isfinite(result.gradient_norm), "every step overflows");
      findings.expect(shard.data.to_vector<float>()[0] == 1e9f,
                      "a skipped step leaves the weights");
      ++skipped[static_cast<std::size_t>(world.rank())];
    }
  };
  // 2^16 can be halved 16 times.
  REQUIRE_THROWS_WITH(run_ranks({.ranks = 2, .threads = 1}, body), Catch::Contains("step 17:"));
  CHECK(skipped == std::vector<int>{16, 16});
  CHECK(findings.wrong() == std::vector<std::string>{});
}

}  // namespace tessera
