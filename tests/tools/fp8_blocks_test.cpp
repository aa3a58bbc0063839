// runtime.fp8_scales blocks: one set of bits and exact bytes on every mesh, refusals, and its effect.
#include <catch2/catch.hpp>

#include "sharding/plan/footprint.h"
#include "tests/support/device.h"
#include "tests/support/error_of.h"
#include "tests/tools/sessions.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/sharding_options.h"
#include "tools/train/resolve_ranks.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::Findings;
using test::TrainedSession;

constexpr int kSteps = 3;

/// A matrix has several blocks, and a micro-batch of two ranks' rows more tokens than one.
Config tiny(const std::string& preset, std::int64_t tokens = 40) {
  Config config;
  config.model = test::tiny_model(preset, tokens);
  config.model.width = 144;
  config.model.vocab_size = 19;
  if (preset != "gpt2-mini") config.model.head_size = 72;
  config.data = {.batch_size = 8, .sequence_length = tokens};
  config.optimizer.learning_rate = 1e-2;
  config.runtime.compute_dtype = ComputeDtype::eight_bits();
  config.runtime.fp8_scales = Fp8Scales::blocks;
  return config;
}

/// Two ranks have whole blocks of every layer.
Config even(const std::string& preset) {
  Config config = tiny(preset);
  config.model.width = 256;
  if (preset != "gpt2-mini") {
    config.model.head_size = 128;
    config.model.kv_heads = 2;
    config.model.mlp_width = 256;
  }
  return config;
}

TrainedSession trained(const Config& config, int ranks, Findings* findings = nullptr) {
  const auto check_state = [](TrainingSession& session, Communicator&, int) {
    CHECK((!session.fp8() || !session.fp8()->has_history()));
  };
  return test::train_session(
      config, ranks,
      {.count = kSteps, .device = test::device(), .findings = findings, .after = check_state});
}

void check_same(const TrainedSession& found, const TrainedSession& expected,
                const Findings& findings = {}) {
  INFO(fmt::format("{}", fmt::join(findings.wrong(), "\n")));
  CHECK(findings.wrong().empty());
  CHECK(found.losses == expected.losses);
  CHECK((found.weights == expected.weights));
}

}  // namespace

TEST_CASE("fp8 blocks: every strategy has the bits of ddp and the footprint's bytes") {
  for (const char* preset : {"gpt2-mini", "llama3-mini"}) {
    const Config base = tiny(preset);
    const TrainedSession expected = trained(variant_of(base, "ddp"), 4);
    for (const char* strategy : {"zero1", "zero2", "zero3", "fsdp", "fsdp_flat", "hsdp"}) {
      if (test::kOnGpu && strategy != std::string("fsdp")) continue;  // the emulated GPU is slow
      CAPTURE(preset, strategy);
      Findings findings;
      const TrainedSession found = trained(variant_of(base, strategy), 4, &findings);
      check_same(found, expected, findings);
    }
  }
}

TEST_CASE("fp8 blocks: weights that are gathered have the bits of whole ones", "[cpu]") {
  struct Case {
    const char* name;
    std::function<void(Config&)> set;
  };
  const std::vector<Case> cases = {
      {"micro-batches", [](Config& config) { config.data.accumulation_steps = 2; }},
      {"bf16 masters", [](Config& config) { config.optimizer.master_dtype = DType::bf16; }},
      {"frozen weights",
       [](Config& config) {
         config.model.frozen = "model.layers.0.self_attn.k_proj,model.layers.1";
       }},
      {"adapters", [](Config& config) { config.adapter.rank = 2; }},
      {"adapters on packed weights",
       [](Config& config) {
         config.adapter.rank = 2;
         config.adapter.base = AdapterBase::nf4;
       }},
      {"averages", [](Config& config) { config.train.ema = 0.5; }},
  };
  for (const Case& one : cases) {
    CAPTURE(one.name);
    Config config = tiny("llama3-mini");
    one.set(config);
    Findings findings;
    check_same(trained(variant_of(config, "fsdp"), 4, &findings),
               trained(variant_of(config, "ddp"), 4), findings);
  }
}

TEST_CASE("fp8 blocks: ranks send as many bytes as in bf16", "[cpu]") {
  const auto bytes_of = [](Config config) {
    config.sharding.tensor_parallel = 2;
    const ResolvedConfig run = resolve(variant_of(config, "fsdp"));
    return footprint_of(make_plan(make_model(run)->units(), run.sharding, {.ranks = 4}), 0)
        .bytes_sent;
  };
  Config config = even("llama3-mini");
  const std::int64_t blocks = bytes_of(config);
  config.runtime.compute_dtype = DType::bf16;
  CHECK(bytes_of(config) == blocks);
}

TEST_CASE("fp8 blocks: one set of bits for tensor, context and pipeline cuts", "[cpu]") {
  for (const char* preset : {"gpt2-mini", "llama3-mini"}) {
    Config base = even(preset);
    base.sharding.grid = 2;
    base = variant_of(base, "fsdp");
    const TrainedSession expected = trained(base, 2);
    for (std::int64_t ShardingConfig::*const cut :
         {&ShardingConfig::tensor_parallel, &ShardingConfig::context_parallel,
          &ShardingConfig::pipeline_parallel}) {
      for (const RowExchange exchange : {RowExchange::together, RowExchange::by_rank}) {
        CAPTURE(preset, enum_name(exchange));
        Config config = base;
        config.sharding.*cut = 2;
        config.sharding.tensor_exchange = exchange;
        Findings findings;
        const TrainedSession found = trained(config, 4, &findings);
        check_same(found, expected, findings);
      }
    }
  }
}

TEST_CASE("fp8 blocks: one set of bits for 1, 2 and 4 ranks, and with recomputation") {
  Config base = tiny("llama3-mini");
  base.train.elastic = 4;
  const TrainedSession expected = trained(base, 1);
  for (const int ranks : {2, 4}) {
    for (const char* recomputes : {"none", "full"}) {
      if (test::kOnGpu && ranks == 4) continue;  // the emulated GPU is slow
      CAPTURE(ranks, recomputes);
      Config config = variant_of(base, "fsdp");
      config.sharding.activation_checkpointing = parse_checkpointing(recomputes).value();
      check_same(trained(config, ranks), expected);
    }
  }
}

TEST_CASE("fp8 blocks: losses are near those of bf16, and those of scales of tensors are others",
          "[cpu]") {
  for (const char* preset : {"gpt2-mini", "llama3-mini"}) {
    for (const DType gradients : {DType::e5m2, DType::e4m3}) {
      Config config = tiny(preset);
      config.runtime.fp8_gradients = gradients;
      const TrainedSession blocks = trained(config, 1);
      config.runtime.fp8_scales = Fp8Scales::tensor;
      const TrainedSession tensors = test::train_session(config, 1, {.count = kSteps});
      config.runtime.compute_dtype = DType::bf16;
      const TrainedSession plain = trained(config, 1);
      CAPTURE(preset, name_of(gradients));
      for (const int step : {0, 2}) {
        CHECK(blocks.losses[step] != plain.losses[step]);
        CHECK(blocks.losses[step] != tensors.losses[step]);
        CHECK(blocks.losses[step] == Approx(plain.losses[step]).epsilon(0.01));
        CHECK(blocks.norms[step] == Approx(plain.norms[step]).epsilon(0.2));
      }
    }
  }
}

TEST_CASE("fp8 blocks: experts, and ranks with parts of blocks, are refused", "[cpu]") {
  const auto error_of = [](const Config& config) {
    return test::error_of([&] { resolve(config); });
  };
  CHECK_THAT(error_of(tiny("qwen3-moe-mini")),
             Contains("runtime.fp8_scales") &&
                 Contains("blocks is not for the experts of 'model.layers.0.mlp.experts.gate_up") &&
                 Contains("set runtime.fp8_scales=tensor"));
  Config config = even("llama3-mini");
  config.sharding.tensor_parallel = 2;
  CHECK(error_of(config) == "no error");
  config.model.mlp_width = 384;
  CHECK_THAT(
      error_of(config),
      Contains("runtime.fp8_scales") &&
          Contains("blocks have 128 channels, and with sharding.tensor_parallel 2 a rank has "
                   "1/2 of 384 of 'model.layers.0.mlp.gate_proj.weight'; choose fewer ranks, "
                   "or set runtime.fp8_scales=tensor"));
  config.sharding.tensor_parallel = 1;
  CHECK(error_of(config) == "no error");
  // A third of GPT-2's joined layer is a layer.
  config = tiny("gpt2-mini");
  config.model.width = 128;
  config.sharding.tensor_parallel = 2;
  CHECK_THAT(error_of(config), Contains("1/2 of 128 of 'transformer.h.0.attn.c_attn.weight'"));
}

}  // namespace tessera
