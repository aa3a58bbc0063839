// train.watch: readings of every unit, the same for every strategy, and the files that a run writes of them.
#include "tools/watch/step_watch.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "runtime/file.h"
#include "tests/support/device.h"
#include "tests/tools/sessions.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/sharding_options.h"
#include "tools/report/report.h"
#include "tools/train/trainer.h"

namespace tessera {
namespace {

using Catch::Contains;
using nlohmann::json;
using test::TemporaryDirectory;
using test::TrainedSession;
using Weights = std::map<std::string, std::vector<float>>;

Config tiny(const std::string& preset) {
  Config config;
  config.model = test::tiny_model(preset, 8);
  config.model.vocab_size = 19;
  config.data = {.batch_size = 8, .sequence_length = 8};
  config.train.watch = 1;
  return config;
}

Config placed(Config config, const std::string& strategy) {
  return variant_of(config, strategy);
}

/// The parameters of each unit.
std::map<std::string, std::vector<std::string>> names_of_units(TrainingSession& session) {
  std::map<std::string, std::vector<std::string>> names;
  for (const auto& unit : session.model().units()) {
    for (const Parameter& parameter : unit->parameters())
      names[unit->name()].push_back(parameter.name());
  }
  return names;
}

double norm_of(const std::vector<std::string>& names, const Weights& a, const Weights& b) {
  double sum = 0.0;
  for (const std::string& name : names) {
    for (std::size_t i = 0; i < a.at(name).size(); ++i) {
      const double x = static_cast<double>(a.at(name)[i]) - (b.empty() ? 0.0 : b.at(name)[i]);
      sum += x * x;
    }
  }
  return std::sqrt(sum);
}

/// Sets all elements of a parameter on every rank.
void set_weight(TrainingSession& session, const std::string& name, double value) {
  session.strategy().write_masters([&] {
    for (const Shard& shard : session.strategy().shards()) {
      if (shard.parameter.name() != name || shard.data.numel() == 0) continue;
      shard.data.copy_from(Tensor::full(shard.data.shape(), shard.data.dtype(), value));
    }
  });
}

}  // namespace

TEST_CASE("readings have the same bits under every strategy") {
  for (const char* preset : {"gpt2-mini", "qwen3-moe-mini"}) {
    const TrainedSession expected = test::train_session(placed(tiny(preset), "ddp"), 4);
    REQUIRE(expected.watch.size() == 3);
    for (const std::string& strategy : strategy_variants()) {
      CAPTURE(preset, strategy);
      test::Findings findings;
      const TrainedSession found =
          test::train_session(placed(tiny(preset), strategy), 4, {.findings = &findings});
      CHECK(found.watch == expected.watch);
      CHECK(findings.wrong() == std::vector<std::string>());
    }
  }
}

TEST_CASE("readings of an elastic run do not depend on the number of ranks") {
  Config config = placed(tiny("gpt2-mini"), "fsdp");
  config.train.elastic = 4;
  const TrainedSession expected = test::train_session(config, 1);
  for (const int ranks : {2, 4}) {
    CAPTURE(ranks);
    CHECK(test::train_session(config, ranks).watch == expected.watch);
  }
}

TEST_CASE("norms are those of the whole parameters, and of the difference that a step makes") {
  Config config = placed(tiny("gpt2-mini"), "zero2");
  config.optimizer.learning_rate = 1e-2;
  SECTION("f32") {}
  SECTION("offloaded state") {
    config.sharding.offload = Offload::optimizer;
  }
  SECTION("f16, with a loss scale") {
    config.runtime.compute_dtype = DType::f16;
  }
  test::with_session(
      config, 2,
      [&](TrainingSession& session, const BatchSource& source, Communicator& world) {
        Weights before;
        StepResult result = {.finite = false};
        for (int step = 1; step == 1 || !result.finite; ++step) {  // f16 may skip steps
          before = test::weights_of(session);
          result = session.step(step, source);
        }
        const Weights after = test::weights_of(session);
        if (world.rank() != 0) return;
        double squares = 0.0;
        for (const UnitReadings& unit : result.watch) {
          INFO(unit.unit);
          const auto names = names_of_units(session).at(unit.unit);
          CHECK(unit.weight_norm == Approx(norm_of(names, before, {})).epsilon(1e-12));
          CHECK(unit.update_norm == Approx(norm_of(names, after, before)).epsilon(1e-6));
          squares += unit.gradient_norm * unit.gradient_norm;
        }
        CHECK(std::sqrt(squares) == Approx(result.gradient_norm).epsilon(1e-12));
      },
      test::device());
}

TEST_CASE("the largest activation and attention logit are those of known weights") {
  Config config = placed(tiny("gpt2-mini"), "fsdp");
  config.sharding.activation_checkpointing = parse_checkpointing("full").value();
  test::with_session(
      config, 2,
      [&](TrainingSession& session, const BatchSource& source, Communicator& world) {
        set_weight(session, "transformer.wte.weight", 0.25);
        set_weight(session, "transformer.wpe.weight", -2.0);
        for (const char* weight : {"attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_proj.weight"})
          set_weight(session, std::string("transformer.h.1.") + weight, 0.0);
        // A head has 8 channels: 8 * 3 * 3 / sqrt(8).
        set_weight(session, "transformer.h.1.attn.c_attn.bias", 3.0);
        set_weight(session, "transformer.h.1.attn.c_proj.bias", 0.0);
        set_weight(session, "transformer.h.1.mlp.c_proj.bias", -50.0);
        const StepResult result = session.step(1, source);
        if (world.rank() != 0) return;
        const std::vector<UnitReadings>& units = result.watch;
        REQUIRE(units.size() == 3);
        CHECK(units[0].largest_activation == 1.75f);
        CHECK_FALSE(units[0].attention_logit.has_value());
        CHECK(units[2].attention_logit == Approx(72.0 / std::sqrt(8.0)));
        // h.1 takes 50 away from the stream, which h.0 has left between -5 and 5.
        CHECK(*units[1].largest_activation < 5.0f);
        CHECK(*units[2].largest_activation == Approx(50.0f).margin(*units[1].largest_activation));
        CHECK_FALSE(units[2].router_entropy.has_value());
      },
      test::device());
}

TEST_CASE("a router with equal logits has the entropy log E") {
  Config config = placed(tiny("qwen3-moe-mini"), "zero3");
  test::with_session(config, 2,
                     [&](TrainingSession& session, const BatchSource& source, Communicator& world) {
                       set_weight(session, "model.layers.1.mlp.gate.weight", 0.0);
                       const StepResult result = session.step(1, source);
                       if (world.rank() != 0) return;
                       CHECK(result.watch[2].router_entropy == Approx(std::log(6.0)));
                       CHECK(result.watch[1].router_entropy < 0.999 * std::log(6.0));
                       CHECK_FALSE(result.watch[0].router_entropy.has_value());
                     });
}

TEST_CASE("a step that changes no weight has no update, and null for what is not finite") {
  Config config = tiny("gpt2-mini");
  config.train.on_nonfinite = OnNonfinite::skip;
  test::with_session(config, 1,
                     [&](TrainingSession& session, const BatchSource& source, Communicator&) {
                       set_weight(session, "transformer.h.0.ln_1.weight", std::nan(""));
                       const StepResult result = session.step(1, source);
                       REQUIRE_FALSE(result.finite);
                       const auto line = json_of(result.watch);
                       CHECK(result.watch[2].update_norm == 0.0);
                       CHECK(line["update_norm"][1].is_null());
                       CHECK(line["weight_norm"][1].is_null());
                       CHECK(line["gradient_norm"][2].is_null());
                       CHECK(line["largest_activation"][1].is_null());
                       CHECK(line["largest_activation"][0].is_number());
                     });
}

TEST_CASE("steps between watched ones have no readings and cost nothing") {
  Config config = placed(tiny("gpt2-mini"), "fsdp");
  config.train.watch = 3;
  test::with_session(config, 2,
                     [&](TrainingSession& session, const BatchSource& source, Communicator& world) {
                       std::vector<std::int64_t> sent;
                       std::vector<bool> watched;
                       for (int step = 1; step <= 4; ++step) {
                         const std::int64_t before = world.bytes_sent();
                         const StepResult result = session.step(step, source);
                         communication_stream().synchronize();
                         sent.push_back(world.bytes_sent() - before);
                         CHECK(result.watch.empty() == (step != 3));
                       }
                       CHECK(sent[1] == sent[3]);
                       // Half of 3 units' words to the other rank: 3 * 20 + 2 of 8 bytes, and 1 of 4 and one
                       // for each of 2 heads, both ways.
                       CHECK(sent[2] - sent[1] == 3 * (62 * 8 + 3 * 4));
                     });
}

TEST_CASE("a run writes its readings to metrics.jsonl and the report, also after a resume",
          "[cpu]") {
  const TemporaryDirectory folder;
  Config config = test::tiny_run(folder);
  config.train.watch = 4;
  config.train.checkpoint_every = 6;
  train(config);
  const std::vector<json> watches = test::events_of(config.train.dir, "watch");
  REQUIRE(watches.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(watches[i]["step"] == 4 * (i + 1));
    CHECK(watches[i]["units"] == json{"embedding", "h.0", "h.1"});
    const double ratio =
        watches[i]["update_norm"][1].get<double>() / watches[i]["weight_norm"][1].get<double>();
    CHECK(watches[i]["update_ratio"][1] == ratio);
    CHECK_FALSE(watches[i].contains("router_entropy"));
  }
  const nlohmann::ordered_json data = report_data(config.train.dir);
  REQUIRE(data["watch"].size() == 3);
  CHECK(data["watch"][1]["gradient_norm"] == watches[1]["gradient_norm"]);
  for (const auto& event : data["events"]) CHECK(event["event"] != "watch");

  std::filesystem::remove_all(config.train.dir / "step-000012");
  std::filesystem::remove_all(config.train.dir / "model");
  train(config);
  const std::vector<json> again = test::events_of(config.train.dir, "watch");
  REQUIRE(again.size() == 3);
  for (const char* name :
       {"gradient_norm", "update_norm", "weight_norm", "largest_activation", "attention_logit"}) {
    CHECK(again[2][name] == watches[2][name]);
  }
}

}  // namespace tessera
