// train.ema: averages of the weights by formula, with the same bits on every strategy, the predicted bytes,
// and their model exported.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "runtime/safetensors.h"
#include "tests/support/device.h"
#include "tests/tools/run_program.h"
#include "tests/tools/sessions.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/sharding_options.h"
#include "tools/train/trainer.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::Findings;
using test::TrainedSession;

constexpr double kDecay = 0.75;

Config tiny(DType dtype = DType::f32, DType master = DType::f32) {
  Config config;
  config.model = test::tiny_model("gpt2-mini", 8);
  config.model.vocab_size = 19;
  config.data = {.batch_size = 6, .sequence_length = 8};
  config.optimizer.learning_rate = 1e-2;
  config.optimizer.master_dtype = master;
  config.runtime.compute_dtype = dtype;
  config.train.ema = kDecay;
  return config;
}

/// The shards' masters, or their averages, by name.
using Values = std::map<std::string, std::vector<float>>;

Values masters_of(TrainingSession& session) {
  Values values;
  for (const Shard& shard : session.strategy().shards()) {
    values[shard.parameter.name()] = shard.data.to_vector<float>();
  }
  return values;
}

}  // namespace

TEST_CASE("ema: a session's averages are those of its weights after every update") {
  Config config = tiny();
  config.model.frozen = "transformer.wpe";
  std::map<std::string, std::vector<double>> expected;
  test::with_session(config, 1, [&](TrainingSession& session, const auto& source, auto&) {
    for (const auto& [name, values] : masters_of(session)) {
      expected[name].assign(values.begin(), values.end());
    }
    for (int step = 1; step <= 4; ++step) {
      session.step(step, source);
      for (const auto& [name, values] : masters_of(session)) {
        for (std::size_t i = 0; i < values.size(); ++i) {
          double& average = expected[name][i];
          average = kDecay * average + (1.0 - kDecay) * static_cast<double>(values[i]);
        }
      }
    }
    const NamedTensors averages = session.optimizer().averages();
    CHECK(averages.size() == expected.size() - 1);  // none of the frozen one
    for (const auto& [name, tensor] : averages) {
      const auto found = tensor.template to_vector<float>();
      for (std::size_t i = 0; i < found.size(); ++i) {
        REQUIRE(std::abs(found[i] - expected[name][i]) < 1e-6);
      }
    }
  });
}

TEST_CASE("ema: every strategy has ddp's averages and weights, and the predicted bytes") {
  for (const auto& [dtype, master] :
       {std::pair(DType::f32, DType::f32), {DType::bf16, DType::f32}, {DType::bf16, DType::bf16}}) {
    Findings findings;
    const auto run = [&](const Config& config) {
      return test::train_session(config, 3,
                                 {.count = 3, .device = test::device(), .findings = &findings});
    };
    Config config = tiny(dtype, master);
    const TrainedSession ddp = run(variant_of(config, "ddp"));
    CHECK(ddp.losses.size() == 4);  // that of the averages is the last
    for (const std::string& strategy : strategy_variants()) {
      findings.expect(run(variant_of(config, strategy)) == ddp, strategy);
    }
    config.train.ema = 0.0;
    const TrainedSession without = run(variant_of(config, "fsdp"));
    findings.expect(without.weights == ddp.weights, "averages change the weights");
    CHECK(findings.wrong() == std::vector<std::string>());
  }
}

TEST_CASE("ema: steps that f16 skips leave the averages") {
  Config config = tiny(DType::f16);
  config.optimizer.clip_norm = 0.0;
  test::with_session(config, 1, [&](TrainingSession& session, const auto& source, auto&) {
    session.strategy().write_masters([&] {  // gradients overflow at the first loss scales
      for (const Shard& shard : session.strategy().shards()) {
        if (shard.parameter.name() != "transformer.ln_f.weight") continue;
        shard.data.copy_from(Tensor::full(shard.data.shape(), DType::f32, 60.0));
      }
    });
    const auto averages = [&] {
      std::vector<std::vector<float>> values;
      for (const auto& [name, tensor] : session.optimizer().averages()) {
        values.push_back(tensor.template to_vector<float>());
      }
      return values;
    };
    int skipped = 0;
    for (int step = 1; step <= 8; ++step) {
      const auto before = averages();
      const bool finite = session.step(step, source).finite;
      CHECK((averages() == before) == !finite);
      skipped += finite ? 0 : 1;
    }
    CHECK(skipped >= 1);
    CHECK(skipped < 8);
  });
}

TEST_CASE("ema: an evaluation of the averages differs from that of the weights, and keeps them") {
  for (const DType master : {DType::f32, DType::bf16}) {
    const Config config = variant_of(tiny(DType::bf16, master), "zero1");
    test::with_session(config, 2, [&](TrainingSession& session, const auto& source, auto&) {
      for (int step = 1; step <= 3; ++step) session.step(step, source);
      const auto before = test::weights_of(session);
      const float loss = session.evaluate(6, source);
      CHECK(session.evaluate_ema(6, source) != loss);
      CHECK(session.evaluate(6, source) == loss);
      CHECK((test::weights_of(session) == before));
    });
  }
}

TEST_CASE("ema: a run reports the loss of the averages, and exports them") {
  const test::TemporaryDirectory folder;
  Config config = test::tiny_run(folder);
  config.train.ema = kDecay;
  config.train.evaluate_ema = true;
  config.train.steps = 6;
  config.train.checkpoint_every = 6;
  config.train.eval_batches = 0;
  config.sharding.strategy = StrategyKind::fsdp;
  config.runtime.ranks = 2;
  train(config);
  const auto last = test::metrics_of(config.train.dir).back();
  CHECK(last["val_loss_ema"].get<double>() != last["val_loss"].get<double>());
  const auto loss_of = [&](const std::filesystem::path& model) {
    const auto outcome = test::run(
        {"eval", "--model", model.string(), "--data", config.data.val.string(), "--json"});
    return nlohmann::json::parse(outcome.out)["val_loss"].get<double>();
  };
  const std::string run = config.train.dir.string();
  const std::string out = (folder / "average").string(), again = (folder / "again").string();
  CHECK_THAT(test::run({"export", "--model", run, "--out", out + "/", "--ema"}).out,
             Contains("wrote "));
  CHECK(loss_of(out) == Approx(last["val_loss_ema"].get<double>()).epsilon(1e-5));
  CHECK(loss_of(config.train.dir) == Approx(last["val_loss"].get<double>()).epsilon(1e-5));
  test::run({"checkpoint", "export", run, "--out", again, "--ema"});
  CHECK(read_text_file(again + "/model.safetensors").size() > 0);
  CHECK(loss_of(again) == loss_of(out));
  CHECK_FALSE(std::filesystem::exists(out + ".whole"));
  config.train.ema = 0.0;
  config.train.evaluate_ema = false;
  config.train.dir = folder / "without";
  train(config);
  const auto none = test::run(
      {"export", "--model", config.train.dir.string(), "--out", (folder / "c").string(), "--ema"});
  CHECK_THAT(none.out + none.err, Contains("has no averages of the weights"));
  config.train.evaluate_ema = true;
  CHECK_THAT(test::error_of([&] { train(config); }), Contains("train.evaluate_ema is true"));
}

}  // namespace tessera
