// runtime.compute_dtype fp8: one set of bits and exact bytes on every mesh, runs that continue, and its effect.
#include <catch2/catch.hpp>
#include <cmath>

#include "kernels/cast/op.h"
#include "kernels/observer.h"
#include "kernels/scale/op.h"
#include "models/adapters.h"
#include "sharding/plan/footprint.h"
#include "tests/support/device.h"
#include "tests/tools/sessions.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/sharding_options.h"

namespace tessera {
namespace {

using test::Findings;
using test::TrainedSession;

/// The first step has guessed scales, two have those of earlier steps.
constexpr int kSteps = 3;

Config tiny(const std::string& preset) {
  Config config;
  config.model = test::tiny_model(preset, 8);
  config.model.vocab_size = 19;
  config.data = {.batch_size = 8, .sequence_length = 8};
  config.optimizer.learning_rate = 1e-2;
  config.runtime.compute_dtype = ComputeDtype::eight_bits();
  return config;
}

/// A training, and the largest magnitudes of its steps.
struct Trained : TrainedSession {
  std::vector<float> history;
};

Trained trained(const Config& config, int ranks, Findings* findings = nullptr,
                const std::function<void(TrainingSession&)>& before = {}) {
  Trained result;
  const auto keep = [&](TrainingSession& session, Communicator& world, int) {
    if (world.rank() == 0 && session.fp8()) {
      result.history = session.fp8()->history().to_vector<float>();
    }
  };
  static_cast<TrainedSession&>(result) = test::train_session(config, ranks,
                                                             {.count = kSteps,
                                                              .device = test::device(),
                                                              .findings = findings,
                                                              .before = before,
                                                              .after = keep});
  return result;
}

/// Opens whole weights as their masters rounded to bf16. Linear layers round these to 8 bits in each use.
void open_in_bf16(TrainingSession& session) {
  for (const Shard& shard : session.strategy().shards()) {
    if (!shard.parameter.rounded() || shard.data.dtype() != DType::f32) continue;
    const Tensor values = Tensor::empty(shard.parameter.held_shape(), DType::bf16);
    cast(values, shard.data.reshape(values.shape()));
    shard.parameter.open(values);
  }
}

void check_same(const Trained& found, const Trained& expected, const Findings& findings = {}) {
  INFO(fmt::format("{}", fmt::join(findings.wrong(), "\n")));
  CHECK(findings.wrong().empty());
  CHECK(found.losses == expected.losses);
  CHECK((found.weights == expected.weights));
  CHECK((found.history == expected.history));
}

/// Numbers of 8-bit weights.
std::int64_t rounded_elements(const LanguageModel& model) {
  std::int64_t count = 0;
  for (const Parameter& weight : adaptable_weights(model)) count += weight.numel();
  return count;
}

}  // namespace

TEST_CASE("fp8: every strategy has the bits of ddp and the footprint's bytes") {
  for (const char* preset : {"gpt2-mini", "llama3-mini", "qwen3-moe-mini"}) {
    const Config base = tiny(preset);
    const Trained expected = trained(variant_of(base, "ddp"), 4);
    for (const char* strategy : {"zero1", "zero2", "zero3", "fsdp", "fsdp_flat", "hsdp"}) {
      CAPTURE(preset, strategy);
      Findings findings;
      const Trained found = trained(variant_of(base, strategy), 4, &findings);
      check_same(found, expected, findings);
    }
  }
}

TEST_CASE(
    "fp8: weights that are held or gathered in 8 bits have the bits of those that are rounded in "
    "each use") {
  struct Case {
    const char* name;
    std::function<void(Config&)> set;
  };
  const std::vector<Case> cases = {
      {"kept", [](Config& config) { config.sharding.reshard_group = 1; }},
      {"groups of two", [](Config& config) { config.sharding.reshard_group = 2; }},
      {"micro-batches", [](Config& config) { config.data.accumulation_steps = 2; }},
      {"bf16 masters", [](Config& config) { config.optimizer.master_dtype = DType::bf16; }},
      {"frozen weights",
       [](Config& config) {
         config.model.frozen = "model.layers.0.self_attn.k_proj,model.layers.1";
       }},
      {"adapters on whole weights", [](Config& config) { config.adapter.rank = 2; }},
      {"averages", [](Config& config) { config.train.ema = 0.5; }},
      {"momentum",
       [](Config& config) {
         config.optimizer.name = OptimizerKind::sgd;
         config.optimizer.momentum = 0.9;
       }},
      {"matrices, and heads that are clipped",
       [](Config& config) {
         config.optimizer.name = OptimizerKind::muon;
         config.optimizer.qk_clip = 0.01;
       }},
  };
  for (const Case& one : cases) {
    CAPTURE(one.name);
    Config config = tiny("llama3-mini");
    one.set(config);
    // An evaluation of averages opens the windows by itself.
    const bool is_at_use = config.train.ema == 0.0;
    const Trained expected =
        trained(variant_of(config, "ddp"), 4, nullptr, is_at_use ? open_in_bf16 : nullptr);
    for (const char* strategy : {"ddp", "zero1", "zero2", "fsdp"}) {
      CAPTURE(strategy);
      Config held = variant_of(config, strategy);
      if (held.sharding.strategy == StrategyKind::fsdp) {
        held.sharding.reshard_group = config.sharding.reshard_group;
      }
      Findings findings;
      const Trained found = trained(held, 4, &findings);
      check_same(found, expected, findings);
    }
  }
  Config single = tiny("gpt2-mini");
  single.sharding.strategy = StrategyKind::single;
  Findings findings;
  const Trained found = trained(single, 1, &findings);
  check_same(found, trained(single, 1, nullptr, open_in_bf16), findings);
  // A join of weights of which one is gathered in 8 bits, and one is held in them.
  Config config = variant_of(tiny("llama3-mini"), "ddp");
  const Trained whole = trained(config, 2);
  config = variant_of(config, "fsdp");
  config.sharding.rules = parse_placement_rules("*.k_proj.weight -> ddp");
  check_same(trained(config, 2), whole);
  // With masters in bf16 one of them is held in bf16.
  config.optimizer.master_dtype = DType::bf16;
  const Trained joined = trained(config, 2);
  config.sharding.rules = {};
  check_same(joined, trained(config, 2));
}

TEST_CASE("fp8: after a step that changes no weight the copies have the scales of the next one") {
  Config config = variant_of(tiny("llama3-mini"), "ddp");
  config.train.on_nonfinite = OnNonfinite::skip;
  // The first step, whose scales are guesses, has a norm's weight of NaN in place of its master.
  const auto damaged = [](bool in_bf16) {
    return [in_bf16, step = 0](TrainingSession& session) mutable {
      communication_stream().synchronize();  // it writes the first copies
      if (in_bf16) open_in_bf16(session);
      ++step;
      for (const Shard& shard : session.strategy().shards()) {
        if (shard.parameter.name() != "model.norm.weight") continue;
        const Tensor& weight = shard.parameter.data();
        const Tensor nan = Tensor::full(weight.shape(), DType::f32, NAN);
        cast(weight, step == 1 ? nan : shard.data.reshape(weight.shape()));
      }
    };
  };
  const Trained found = trained(config, 2, nullptr, damaged(false));
  CHECK_FALSE(std::isfinite(found.losses.front()));
  CHECK(std::isfinite(found.losses.back()));
  const Trained expected = trained(config, 2, nullptr, damaged(true));
  CHECK(std::equal(found.losses.begin() + 1, found.losses.end(), expected.losses.begin() + 1));
  CHECK((found.weights == expected.weights));
  CHECK((found.history == expected.history));
}

TEST_CASE(
    "fp8: a weight of 8 bits takes one byte in a gather, and in the memory that it is held in or "
    "gathered to") {
  // There are 2 layers x 7 weights x 3 magnitudes in f32, 42 numbers. Rank 0 compares 10: it sends 32 to the
  // others, and 3 x 10 maxima.
  constexpr std::int64_t kMaxima = 4 * (32 + 30);
  for (const char* strategy : {"ddp", "zero1", "zero2", "fsdp"}) {
    for (const DType masters : {DType::f32, DType::bf16}) {
      CAPTURE(strategy, name_of(masters));
      Config config = variant_of(tiny("llama3-mini"), strategy);
      config.sharding.reshard_group = 1;  // every bucket has a slot, and is gathered once
      config.optimizer.master_dtype = masters;
      const auto planned = [&](ComputeDtype dtype) {
        config.runtime.compute_dtype = dtype;
        const ResolvedConfig run = resolve(config);
        const auto model = make_model(run);
        const Plan plan = make_plan(model->units(), run.sharding, {.ranks = 4});
        return std::pair(footprint_of(plan, 0), rounded_elements(*model));
      };
      const auto [wide, count] = planned(DType::bf16);
      const auto [narrow, same_count] = planned(ComputeDtype::eight_bits());
      const bool gathers = config.sharding.strategy == StrategyKind::fsdp;
      // Whole weights in bf16 are the masters, if these are bf16.
      const std::int64_t saved = gathers || masters == DType::f32 ? count : 0;
      CHECK(wide.parameters - narrow.parameters == (gathers ? 0 : saved));
      CHECK(wide.communication - narrow.communication == (gathers ? saved : 0));
      const std::int64_t sent = config.sharding.strategy == StrategyKind::ddp ? 0 : 3 * saved / 4;
      CHECK(wide.bytes_sent - narrow.bytes_sent == sent - kMaxima);
    }
  }
}

TEST_CASE("fp8: one set of bits for tensor, context and pipeline cuts") {
  for (const char* preset : {"gpt2-mini", "llama3-mini", "qwen3-moe-mini", "llama4-mini"}) {
    Config base = tiny(preset);
    base.sharding.grid = 2;
    base = variant_of(base, "fsdp");
    const Trained expected = trained(base, 2);
    for (std::int64_t ShardingConfig::*const cut :
         {&ShardingConfig::tensor_parallel, &ShardingConfig::context_parallel,
          &ShardingConfig::pipeline_parallel}) {
      for (const RowExchange exchange : {RowExchange::together, RowExchange::by_rank}) {
        CAPTURE(preset, enum_name(exchange));
        Config config = base;
        config.sharding.*cut = 2;
        config.sharding.tensor_exchange = exchange;
        Findings findings;
        const Trained found = trained(config, 4, &findings);
        check_same(found, expected, findings);
      }
    }
  }
}

TEST_CASE("fp8: one set of bits for 1, 2 and 4 ranks, and with recomputation") {
  Config base = tiny("llama3-mini");
  base.train.elastic = 4;
  const Trained expected = trained(base, 1);
  for (const int ranks : {2, 4}) {
    for (const char* recomputes : {"none", "full"}) {
      CAPTURE(ranks, recomputes);
      Config config = variant_of(base, "fsdp");
      config.sharding.activation_checkpointing = parse_checkpointing(recomputes).value();
      check_same(trained(config, ranks), expected);
    }
  }
}

TEST_CASE("fp8: experts have one set of bits, however many ranks share them out") {
  struct Case {
    const char* name;
    std::function<void(Config&)> set;
  };
  const std::vector<Case> cases = {
      {"micro-batches", [](Config& config) { config.data.accumulation_steps = 2; }},
      {"adapters on packed weights",
       [](Config& config) {
         config.adapter.rank = 2;
         config.adapter.base = AdapterBase::nf4;
       }},
      {"copies of tokens",
       [](Config& config) { config.sharding.expert_copies = ExpertCopies::each_rank; }},
  };
  for (const char* preset : {"qwen3-moe-mini", "llama4-mini"}) {
    for (const Case& one : cases) {
      Config config = tiny(preset);
      config.model.experts = 8;
      one.set(config);
      const Trained expected = trained(variant_of(config, "ddp"), 4);
      // 16 steps of 3 magnitudes for each weight of 2 layers: q, k, v, o, and two of experts. Llama 4's first layer
      // has gate, up and down in place of experts, and its second a shared expert besides.
      const std::size_t weights = std::string(preset) == "qwen3-moe-mini" ? 12 : 16;
      CHECK(expected.history.size() == 16 * 3 * weights);
      for (const char* strategy : {"ddp", "zero3", "fsdp"}) {
        for (const int ranks : {2, 4}) {
          if (test::kOnGpu && ranks == 4) continue;  // the emulated GPU is slow
          CAPTURE(preset, one.name, strategy, ranks);
          Config shared = variant_of(config, strategy);
          shared.sharding.expert_parallel = ranks;
          Findings findings;
          const Trained found = trained(shared, 4, &findings);
          check_same(found, expected, findings);
        }
      }
    }
  }
}

TEST_CASE("fp8: losses are near those of bf16") {
  for (const char* preset : {"gpt2-mini", "qwen3-moe-mini"}) {
    for (const DType gradients : {DType::e5m2, DType::e4m3}) {
      Config config = tiny(preset);
      config.runtime.fp8_gradients = gradients;
      const TrainedSession rounded = trained(config, 1);
      config.runtime.compute_dtype = DType::bf16;
      const TrainedSession plain = trained(config, 1);
      CAPTURE(preset, name_of(gradients));
      for (const int step : {0, 2}) {
        CHECK(rounded.losses[step] != plain.losses[step]);
        CHECK(rounded.losses[step] == Approx(plain.losses[step]).epsilon(0.01));
        CHECK(rounded.norms[step] == Approx(plain.norms[step]).epsilon(0.2));
      }
    }
  }
}

TEST_CASE(
    "fp8: neither an evaluation, of other weights too, nor a look at operations changes the "
    "steps") {
  Config config = variant_of(tiny("gpt2-mini"), GENERATE("ddp", "fsdp"));
  config.optimizer.weight_decay = 0.0;
  config.train.ema = 0.9;
  struct : OperationObserver {
    void before(std::string_view, std::span<const Tensor>) override {}
    void after(std::string_view, std::span<const Tensor>) override {}
  } observer;
  // The losses, and the largest magnitudes of all steps.
  const auto results = [&](bool looks) {
    std::vector<float> all;
    test::with_session(
        config, 2,
        [&](TrainingSession& session, const BatchSource& source, Communicator& world) {
          for (std::int64_t step = 1; step <= kSteps; ++step) {
            if (looks) session.observe(step + 10, source, observer);
            if (looks) session.evaluate(8, source);
            if (looks) session.evaluate_ema(8, source);
            for (const float factor : {2.0f, 0.5f}) {
              if (!looks) break;
              session.strategy().write_masters([&] {
                for (const Shard& shard : session.strategy().shards()) {
                  scale(shard.data, shard.data, factor);
                }
              });
              session.evaluate(8, source);
            }
            const float loss = session.step(step, source).loss;
            if (world.rank() == 0) all.push_back(loss);
          }
          if (world.rank() != 0) return;
          const auto history = session.fp8()->history().to_vector<float>();
          all.insert(all.end(), history.begin(), history.end());
        },
        test::device());
    return all;
  };
  CHECK(results(true) == results(false));
}

TEST_CASE("fp8: a step that cuts numbers names the tensor") {
  Config config = tiny("gpt2-mini");
  config.optimizer.learning_rate = 0.0;
  test::with_session(
      config, 1,
      [&](TrainingSession& session, const BatchSource& source, Communicator&) {
        session.step(1, source);  // its scales are guesses
        CHECK(session.step(1, source).cut.tensors == 0);
        session.strategy().write_masters([&] {
          for (const Shard& shard : session.strategy().shards()) {
            if (shard.parameter.name() != "transformer.h.1.mlp.c_proj.weight") continue;
            shard.data.copy_from(Tensor::full(shard.data.shape(), DType::f32, 1000.0));
          }
        });
        const Fp8Cut cut = session.step(1, source).cut;
        CHECK(cut.tensors > 0);
        CHECK(cut.name == "transformer.h.1.mlp.c_proj.weight, weight");
        CHECK(cut.ratio > 100.0f);
        // With the weight at its size the gradients before it grow, a layer in each step.
        for (int layer = 0; layer < 8; ++layer) session.step(1, source);
        CHECK(session.step(1, source).cut.tensors == 0);
      },
      test::device());
}

}  // namespace tessera
