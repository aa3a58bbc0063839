// Sessions of tensor, context and pipeline ranks on emulated GPUs: the bits of fewer ranks, and the footprint's
// memory and bytes, for several orders in which streams progress.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "tests/support/progress.h"
#include "tests/tools/sessions.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/sharding_options.h"

namespace tessera {
namespace {

using test::Findings;
using test::TrainedSession;

constexpr Device kGpu{DeviceType::cuda, 0};

/// Two narrow layers, and a head with weights of its own.
Config tiny(const char* strategy) {
  Config config;
  config.model = test::tiny_model("llama3-8b", 8);
  config.model.heads = config.model.kv_heads = 4;
  config.model.vocab_size = 19;
  config.data = {.batch_size = 2, .sequence_length = 8};
  config.optimizer.clip_norm = 0.1;
  return variant_of(config, strategy);
}

TrainedSession train(const Config& config, int ranks) {
  Findings findings;
  const TrainedSession trained =
      test::train_session(config, ranks, {.device = kGpu, .findings = &findings});
  CHECK(findings.wrong() == std::vector<std::string>{});
  return trained;
}

/// `config` with 2 and 4 ranks along an axis, against one rank.
void expect_same_bits(Config config, std::int64_t ShardingConfig::*axis) {
  config.sharding.*axis = 1;
  const TrainedSession expected = train(config, 1);
  REQUIRE(expected.losses[0] != expected.losses[1]);
  for (const int ranks : {2, 4}) {
    CAPTURE(ranks);
    config.sharding.*axis = ranks;
    test::for_every_progress(1, [&] { CHECK((train(config, ranks) == expected)); });
  }
}

}  // namespace

TEST_CASE("emulated GPUs: 2 and 4 tensor ranks have the bits of one") {
  Config config = tiny("fsdp");
  config.sharding.grid = 4;
  expect_same_bits(config, &ShardingConfig::tensor_parallel);
}

TEST_CASE("emulated GPUs: 2 and 4 context ranks have the bits of one") {
  Config config = tiny("ddp");
  config.sharding.grid = 4;
  expect_same_bits(config, &ShardingConfig::context_parallel);
}

TEST_CASE("emulated GPUs: 2 and 4 stages of a pipeline have the bits of one") {
  Config config = tiny("zero1");
  config.data.accumulation_steps = 2;
  config.sharding.pipeline_schedule = PipelineSchedule::gpipe;
  SECTION("a head of its own weights") {
    config.sharding.pipeline_schedule = PipelineSchedule::zero_bubble;
    config.sharding.reduce = ReduceAfter::last_micro_batch;
  }
  SECTION("tied embedding and head") {
    config.model = test::tiny_model("gpt2-mini", 8);
    config.model.vocab_size = 19;
  }
  expect_same_bits(config, &ShardingConfig::pipeline_parallel);
}

TEST_CASE("emulated GPUs: tensor ranks in the stages of a pipeline have the bits of one") {
  Config config = tiny("fsdp");
  config.sharding.grid = 2;
  config.runtime.compute_dtype = DType::bf16;
  const TrainedSession expected = train(config, 1);
  config.sharding.tensor_parallel = config.sharding.pipeline_parallel = 2;
  test::for_every_progress(1, [&] { CHECK((train(config, 4) == expected)); });
}

}  // namespace tessera
