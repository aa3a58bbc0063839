// Sessions of tensor, context, pipeline and expert ranks have the bits of fewer ranks, and the footprint's memory and
// bytes.
//
// They are short, for the sanitizers. Ranks are threads. On the CPU messages and computation come late by random
// times. On emulated GPUs, one for each rank, a seed chooses which streams get ahead.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "tests/support/device.h"
#include "tests/tools/sessions.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/sharding_options.h"
#if defined(TESSERA_EMULATED)
#include "runtime/emulation/toolkit/emulated_device.h"
#endif

namespace tessera {
namespace {

using test::Findings;
using test::TrainedSession;

/// Two narrow layers, and sums in two parts.
Config tiny(const std::string& preset) {
  Config config;
  config.model = test::tiny_model(preset, 8);
  config.model.vocab_size = 19;
  config.data = {.batch_size = 2, .sequence_length = 8};
  config.optimizer.clip_norm = 0.1;
  config.sharding.grid = 2;
  return config;
}

TrainedSession train_late(const Config& config, int ranks, std::uint64_t seed) {
#if defined(TESSERA_EMULATED)
  emulation::DeviceOptions gpus = emulation::device_options();
  gpus.devices = ranks;
  gpus.progress = emulation::Progress::shuffled;
  gpus.seed = seed;
  const emulation::DeviceOptionsGuard guard(gpus);
#endif
  Findings findings;
  const TrainedSession trained = test::train_session(
      config, ranks, {.device = test::device(), .findings = &findings, .delay_seed = seed});
  CHECK(findings.wrong() == std::vector<std::string>{});
  return trained;
}

void expect_same_bits(const Config& config, int ranks, const TrainedSession& expected) {
  REQUIRE(expected.losses[0] != expected.losses[1]);
  INFO(ranks << " ranks");
  const TrainedSession found = train_late(config, ranks, static_cast<std::uint64_t>(ranks));
  CHECK(found.losses == expected.losses);
  CHECK(found.norms == expected.norms);
  CHECK(found.router_losses == expected.router_losses);
  CHECK((found.weights == expected.weights));
}

}  // namespace

TEST_CASE("sessions: tensor ranks, alone and in stages of a pipeline, have the bits of one rank") {
  Config config = variant_of(tiny("llama3-8b"), "fsdp");
  config.data.accumulation_steps = 2;
  config.runtime.compute_dtype = DType::bf16;
  const TrainedSession expected = test::train_session(config, 1, {.device = test::device()});
  config.sharding.tensor_parallel = 2;
  expect_same_bits(config, 2, expected);
  config.sharding.pipeline_parallel = 2;
  expect_same_bits(config, 4, expected);
}

TEST_CASE("sessions: context ranks, alone and next to data ranks, have the bits of one rank") {
  Config config = variant_of(tiny("gpt2-mini"), "fsdp");
  config.model.dropout = 0.2;
  config.train.elastic = 2;
  const TrainedSession expected = test::train_session(config, 1, {.device = test::device()});
  config.sharding.context_parallel = 2;
  expect_same_bits(config, 2, expected);
  config.sharding.context_exchange = KeyExchange::heads;
  expect_same_bits(config, 4, expected);
}

TEST_CASE(
    "sessions: tensor ranks that share out the channels of experts have the bits of one rank") {
  Config config = variant_of(tiny("qwen3-moe-mini"), "ddp");
  config.moe.balance = Balance::bias;
  config.sharding.activation_checkpointing = {.first = 0, .every = 1};
  const TrainedSession expected = test::train_session(config, 1, {.device = test::device()});
  config.sharding.tensor_parallel = 2;
  expect_same_bits(config, 2, expected);
}

TEST_CASE("sessions: context ranks next to expert ranks have the same bits under two strategies") {
  Config config = tiny("qwen3-moe-mini");
  config.moe.balance = Balance::lagged;
  config.sharding.grid = 0;
  config.sharding.context_parallel = config.sharding.expert_parallel = 2;
  config.sharding.expert_copies = ExpertCopies::each_rank;
  const TrainedSession expected =
      test::train_session(variant_of(config, "ddp"), 4, {.device = test::device()});
  expect_same_bits(variant_of(config, "fsdp"), 4, expected);
}

}  // namespace tessera
