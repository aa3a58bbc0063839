// Pipeline parallelism changes neither a loss nor a weight, and its bytes are as predicted.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/support/device.h"
#include "tests/support/error_of.h"
#include "tests/support/findings.h"
#include "tests/tools/sessions.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/sharding_options.h"
#include "tools/measure/workload.h"
#include "tools/plan/dry_run.h"
#include "tools/train/resolve.h"
#include "tools/train/session.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::Findings;
using test::TrainedSession;

constexpr const char* kGpt2 = "gpt2-mini";
constexpr const char* kLlama = "llama3-8b";
constexpr const char* kTiedLlama = "llama3-mini";
constexpr const char* kLlama4 = "llama4-mini";
constexpr const char* kQwen3 = "qwen3-moe-mini", *kUntiedQwen3 = "qwen3-30b-a3b";

struct Variant {
  const char* preset;
  int stages, data_ranks, micro_batches;
  const char* strategy = "ddp";
  const char* schedule = "1f1b";
  DType dtype = DType::f32;
  int chunks = 1;
  bool recomputes = false;
  bool each_reduced = true;
};

Config base_of(const Variant& v) {
  Config config;
  config.model = test::tiny_model(v.preset);
  config.model.layers = 4;
  config.model.vocab_size = 41;
  if (std::string(v.preset) == kGpt2) config.model.dropout = 0.1;
  config.data = {.batch_size = 2 * v.data_ranks * v.micro_batches,
                 .sequence_length = 9,
                 .accumulation_steps = v.micro_batches};
  config.optimizer.learning_rate = 1e-2;
  config.runtime.compute_dtype = v.dtype;
  config.sharding.reduce =
      v.each_reduced ? ReduceAfter::every_micro_batch : ReduceAfter::last_micro_batch;
  if (v.recomputes) config.sharding.activation_checkpointing = {.first = 0, .every = 2};
  return variant_of(config, v.strategy);
}

Config pipelined(Config config, const Variant& v) {
  config.sharding.pipeline_parallel = v.stages;
  config.sharding.pipeline_schedule = enum_from_name<PipelineSchedule>(v.schedule);
  config.sharding.pipeline_chunks = v.chunks;
  return config;
}

/// Two steps, and the loss of an evaluation behind those of the steps. Memory and traffic must be those of the
/// footprint, and of a dry run of each rank.
TrainedSession run(const Config& config, int ranks, Findings& findings) {
  float evaluation = 0.0f;
  const auto after = [&](TrainingSession& session, Communicator& world, int step) {
    if (step == 1) return;
    const float loss = session.evaluate(3, random_tokens(config.data, config.model.vocab_size));
    if (world.rank() == 0) evaluation = loss;
  };
  TrainedSession trained = test::train_session(
      config, ranks, {.device = test::device(), .findings = &findings, .after = after});
  trained.losses.push_back(evaluation);
  return trained;
}

void expect_same_bits(const Variant& v) {
  INFO(fmt::format("{} by {} in {} stages x {} data ranks, {} x {}, {}, {} micro-batches", v.preset,
                   v.strategy, v.stages, v.data_ranks, v.schedule, v.chunks, name_of(v.dtype),
                   v.micro_batches));
  const Config config = base_of(v);
  Findings findings;
  const TrainedSession without = run(config, v.data_ranks, findings);
  const TrainedSession with = run(pipelined(config, v), v.stages * v.data_ranks, findings);
  CHECK(with.losses == without.losses);
  CHECK(with.norms == without.norms);
  CHECK((with.weights == without.weights));
  CHECK(findings.wrong() == std::vector<std::string>{});
}

}  // namespace

TEST_CASE("a pipeline has the same bits and predicted bytes: two stages, every strategy") {
  expect_same_bits({kLlama, 2, 1, 3, "ddp", "gpipe"});
  expect_same_bits({kLlama, 2, 2, 2, "ddp"});
  expect_same_bits({kLlama, 2, 2, 3, "zero1", "1f1b", DType::bf16});
  expect_same_bits({kLlama, 2, 2, 2, "zero2", "gpipe"});
  expect_same_bits({kLlama, 2, 2, 3, "zero3", "1f1b", DType::bf16});
  expect_same_bits({kLlama, 2, 2, 4, "fsdp", "1f1b", DType::f32, 1, /*recomputes=*/true});
  expect_same_bits({kLlama, 2, 2, 2, "fsdp_flat", "1f1b", DType::f32, 1, false, false});
  expect_same_bits({kLlama, 2, 4, 1, "hsdp"});
}

TEST_CASE("a pipeline has the same bits and predicted bytes: four stages") {
  expect_same_bits({kLlama, 4, 1, 6, "ddp", "1f1b"});
  expect_same_bits({kLlama, 4, 2, 4, "fsdp", "gpipe", DType::bf16, 1, true});
  expect_same_bits({kLlama, 4, 2, 2, "zero2", "1f1b", DType::f32, 1, false, false});
}

TEST_CASE("a pipeline has the same bits and predicted bytes: interleaved chunks") {
  expect_same_bits({kLlama, 2, 1, 4, "ddp", "interleaved", DType::f32, 2});
  expect_same_bits({kLlama, 2, 2, 2, "fsdp", "interleaved", DType::bf16, 3, true});
}

TEST_CASE("a pipeline has the same bits and predicted bytes: gradients of weights in a pass apart") {
  constexpr bool kReducedOnce = false;
  expect_same_bits({kLlama, 2, 1, 4, "ddp", "zero_bubble", DType::f32, 1, false, kReducedOnce});
  expect_same_bits({kLlama, 4, 2, 6, "zero1", "zero_bubble", DType::bf16, 1, false, kReducedOnce});
  expect_same_bits({kLlama, 4, 1, 5, "fsdp", "zero_bubble", DType::f32, 1, true, kReducedOnce});
  expect_same_bits({kUntiedQwen3, 2, 2, 3, "hsdp", "zero_bubble", DType::f32, 1, false, kReducedOnce});
  expect_same_bits({kGpt2, 2, 2, 1, "ddp", "zero_bubble"});
}

TEST_CASE("a pipeline has the same bits and predicted bytes: tied embedding and head") {
  expect_same_bits({kGpt2, 2, 1, 3, "ddp"});
  expect_same_bits({kGpt2, 2, 2, 2, "zero1", "gpipe", DType::bf16});
  expect_same_bits({kGpt2, 2, 2, 3, "zero3", "1f1b", DType::bf16});
  expect_same_bits({kTiedLlama, 4, 2, 5, "fsdp", "1f1b", DType::f32, 1, /*recomputes=*/true});
  expect_same_bits({kTiedLlama, 2, 2, 1, "hsdp"});
  expect_same_bits({kGpt2, 2, 1, 4, "zero2", "interleaved", DType::f32, 2});
}

TEST_CASE("a pipeline has the same bits and predicted bytes: mixtures of experts") {
  expect_same_bits({kQwen3, 2, 2, 2, "fsdp"});
  expect_same_bits({kLlama4, 4, 1, 4, "zero1", "1f1b", DType::bf16});
}

}  // namespace tessera
