// optimizer.qk_clip: the factors of heads by their formulas, one set of bits and exact bytes on every mesh, and
// its mistakes.
#include "tools/train/qk_clip.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "tests/support/device.h"
#include "tests/tools/sessions.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/sharding_options.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::Findings;
using test::TrainedSession;
using Weights = std::map<std::string, std::vector<float>>;

constexpr double kThreshold = 10.0;

Config tiny(const std::string& preset) {
  Config config;
  config.model = test::tiny_model(preset, 8);
  config.model.vocab_size = 19;
  config.data = {.batch_size = 8, .sequence_length = 8};
  config.optimizer.name = OptimizerKind::muon;
  config.optimizer.qk_clip = kThreshold;
  return config;
}

/// value(element) for every element of a parameter, on every rank.
void set_weight(TrainingSession& session, const std::string& name,
                const std::function<float(std::int64_t element)>& value) {
  session.strategy().write_masters([&] {
    for (const Shard& shard : session.strategy().shards()) {
      if (shard.parameter.name() != name || shard.count() == 0) continue;
      std::vector<float> values(static_cast<std::size_t>(shard.data.numel()));
      shard.elements().for_each_run(shard.count(), [&](auto element, auto offset, auto count) {
        for (std::int64_t i = 0; i < count; ++i) {
          values[static_cast<std::size_t>(offset + i)] = value(element + i);
        }
      });
      shard.data.copy_from(Tensor::from(values, shard.data.shape()));
    }
  });
}

/// The weights before and after a step with the learning rate 0, after `set` on two ranks.
std::pair<Weights, Weights> clipped(Config config,
                                    const std::function<void(TrainingSession&)>& set) {
  config.optimizer.learning_rate = 0.0;
  std::pair<Weights, Weights> weights;
  test::with_session(
      variant_of(config, "fsdp"), 2,
      [&](TrainingSession& session, const BatchSource& source, Communicator& world) {
        set(session);
        const Weights before = test::weights_of(session);
        session.step(1, source);
        const Weights after = test::weights_of(session);
        if (world.rank() == 0) weights = {before, after};
      },
      test::device());
  return weights;
}

}  // namespace

TEST_CASE("qk_clip: a head above the threshold has its queries and keys scaled by the root") {
  // Without an input, queries and keys are their biases: a head of 8 channels has the logit 8 q k / sqrt(8).
  const float query[] = {4.0f, 1.0f}, key[] = {3.0f, 2.0f};
  const std::string attention = "transformer.h.1.attn.c_attn";
  const auto [before, after] = clipped(tiny("gpt2-mini"), [&](TrainingSession& session) {
    set_weight(session, "transformer.h.1.ln_1.weight", [](std::int64_t) { return 0.0f; });
    set_weight(session, attention + ".bias", [&](std::int64_t channel) {
      return channel < 16 ? query[channel / 8] : channel < 32 ? key[channel / 8 - 2] : 0.5f;
    });
  });
  const double factor = std::sqrt(kThreshold / (8.0 * 4.0 * 3.0 / std::sqrt(8.0)));
  for (const char* part : {".weight", ".bias"}) {
    const std::vector<float>&was = before.at(attention + part), &is = after.at(attention + part);
    for (std::size_t i = 0; i < was.size(); ++i) {
      const std::size_t head = i % 48 / 8;  // of queries 0 and 1, keys 2 and 3, values 4 and 5
      CAPTURE(part, i, head);
      if (head == 0 || head == 2) {
        CHECK(is[i] == Approx(factor * was[i]).epsilon(1e-6));
      } else {
        CHECK(is[i] == was[i]);
      }
    }
  }
  CHECK(after.at("transformer.h.0.attn.c_attn.weight") ==
        before.at("transformer.h.0.attn.c_attn.weight"));
}

TEST_CASE("qk_clip: a shared key head stays, and its query head above the threshold is scaled") {
  Config config = tiny("llama3-mini");
  config.model.kv_heads = 1;
  const std::string attention = "model.layers.0.self_attn.";
  const float query[] = {0.5f, 0.125f};
  // Equal embeddings become ones, so a channel of a query is 16 times its weight. A token has its largest
  // logit with itself, where rotations cancel.
  const auto [before, after] = clipped(config, [&](TrainingSession& session) {
    set_weight(session, "model.embed_tokens.weight", [](std::int64_t) { return 100.0f; });
    set_weight(session, attention + "q_proj.weight",
               [&](std::int64_t element) { return query[element / (8 * 16)]; });
    set_weight(session, attention + "k_proj.weight", [](std::int64_t) { return 0.0625f; });
  });
  const double factor = kThreshold / (8.0 * 8.0 * 1.0 / std::sqrt(8.0));
  CHECK(after.at(attention + "k_proj.weight") == before.at(attention + "k_proj.weight"));
  const std::vector<float>& is = after.at(attention + "q_proj.weight");
  for (std::size_t i = 0; i < is.size(); ++i) {
    CAPTURE(i);
    CHECK(is[i] == Approx(i < 8 * 16 ? factor * 0.5 : 0.125).epsilon(1e-5));
  }
}

TEST_CASE("qk_clip: the next step of a clipped model has the threshold as its largest logit") {
  for (const std::string preset : {"gpt2-mini", "llama3-mini"}) {
    Config config = tiny(preset);
    config.optimizer.qk_clip = 1e-3;
    config.optimizer.learning_rate = 0.0;
    config.train.watch = 1;
    test::with_session(
        variant_of(config, "zero2"), 2,
        [&](TrainingSession& session, const BatchSource& source, Communicator& world) {
          const StepResult first = session.step(1, source), second = session.step(1, source);
          if (world.rank() != 0) return;
          CAPTURE(preset);
          CHECK(first.watch[1].attention_logit > 2e-3f);
          CHECK(second.watch[1].attention_logit == Approx(1e-3).epsilon(1e-4));
        },
        test::device());
  }
}

TEST_CASE("qk_clip: every strategy has the bits of ddp and the footprint's bytes") {
  for (const std::string preset : {"gpt2-mini", "llama3-mini"}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Config base = tiny(preset);
      base.optimizer.qk_clip = 1e-3;
      base.optimizer.learning_rate = 1e-2;
      base.runtime.compute_dtype = dtype;
      base.train.ema = 0.5;
      const TrainedSession expected = test::train_session(variant_of(base, "ddp"), 4);
      Config without = variant_of(base, "ddp");
      without.optimizer.qk_clip = 0.0;
      CHECK((test::train_session(without, 4).weights != expected.weights));
      for (const char* strategy : {"zero1", "zero2", "zero3", "fsdp", "fsdp_flat", "hsdp"}) {
        CAPTURE(preset, name_of(dtype), strategy);
        Findings findings;
        const TrainedSession found = test::train_session(
            variant_of(base, strategy), 4, {.device = test::device(), .findings = &findings});
        INFO(fmt::format("{}", fmt::join(findings.wrong(), "\n")));
        CHECK(findings.wrong().empty());
        CHECK((found == expected));
      }
    }
  }
}

TEST_CASE("qk_clip: one set of bits for tensor, context and pipeline cuts") {
  Config base = tiny("gpt2-mini");
  base.optimizer.qk_clip = 1e-3;
  base.optimizer.learning_rate = 1e-2;
  base.sharding.grid = 2;
  base = variant_of(base, "fsdp");
  const TrainedSession expected = test::train_session(base, 2);
  for (std::int64_t ShardingConfig::*const cut :
       {&ShardingConfig::tensor_parallel, &ShardingConfig::context_parallel,
        &ShardingConfig::pipeline_parallel}) {
    Config config = base;
    config.sharding.*cut = 2;
    Findings findings;
    const TrainedSession found = test::train_session(config, 4, {.findings = &findings});
    INFO(fmt::format("{}", fmt::join(findings.wrong(), "\n")));
    CHECK(findings.wrong().empty());
    CHECK((found.weights == expected.weights));
  }
}

TEST_CASE("qk_clip: mistakes are named") {
  const auto error_of = [](const Config& config) {
    return test::error_of([&] { make_model(resolve(config)); });
  };
  Config config = tiny("gpt2-mini");
  CHECK(error_of(config) == "no error");
  config.optimizer.name = OptimizerKind::adamw;
  CHECK_THAT(error_of(config), Contains("optimizer.qk_clip") && Contains("no group has muon"));
  CHECK_THAT(error_of(tiny("qwen3-mini")), Contains("norms of queries and keys"));
  config = tiny("gpt2-mini");
  config.model.frozen = "transformer.h.0.attn";
  CHECK_THAT(error_of(config), Contains("c_attn.weight is frozen"));
}

}  // namespace tessera
