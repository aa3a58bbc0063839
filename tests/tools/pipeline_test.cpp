// Pipeline parallelism changes neither a loss nor a weight, and its bytes are as predicted.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "sharding/plan/footprint.h"
#include "tests/support/device.h"
#include "tests/support/error_of.h"
#include "tests/support/findings.h"
#include "tests/tools/sessions.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/sharding_options.h"
#include "tools/measure/workload.h"
#include "tools/plan/dry_run.h"
#include "tools/train/resolve.h"
#include "tools/train/resolve_ranks.h"
#include "tools/train/session.h"
#include "tools/train/trainer.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::Findings;
using test::TrainedSession;

constexpr const char* kGpt2 = "gpt2-mini";
constexpr const char* kLlama = "llama3-8b";
constexpr const char* kTiedLlama = "llama3-mini";
constexpr const char* kLlama4 = "llama4-mini";
constexpr const char *kQwen3 = "qwen3-moe-mini", *kUntiedQwen3 = "qwen3-30b-a3b";

struct Variant {
  const char* preset;
  int stages, data_ranks, micro_batches;
  const char* strategy = "ddp";
  const char* schedule = "1f1b";
  DType dtype = DType::f32;
  int chunks = 1;
  bool recomputes = false;
  bool each_reduced = true;
  int tensor = 1, context = 1, grid = 0;
  std::optional<Balance> balance = {};
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
  config.moe.balance = v.balance;
  if (v.balance) config.moe.loss_coefficient = 0.5;
  config.sharding.reduce =
      v.each_reduced ? ReduceAfter::every_micro_batch : ReduceAfter::last_micro_batch;
  if (v.recomputes) config.sharding.activation_checkpointing = {.first = 0, .every = 2};
  config.sharding.grid = v.grid;
  if (v.grid > 0) {
    config.model.heads = 4;
    config.model.width = 16;
    if (std::string(v.preset) != kGpt2) {
      config.model.kv_heads = 2;
      config.model.head_size = 4;
      config.model.mlp_width = 32;
    }
    config.model.context = config.data.sequence_length = 16;
  }
  return variant_of(config, v.strategy);
}

Config pipelined(Config config, const Variant& v) {
  config.sharding.pipeline_parallel = v.stages;
  config.sharding.pipeline_schedule = enum_from_name<PipelineSchedule>(v.schedule);
  config.sharding.pipeline_chunks = v.chunks;
  config.sharding.tensor_parallel = v.tensor;
  config.sharding.context_parallel = v.context;
  return config;
}

/// Two steps, and the loss of an evaluation behind those of the steps. Memory and traffic must be those of the
/// footprint, and of a dry run of each rank.
TrainedSession run(const Config& config, int ranks, Findings& findings) {
  return test::train_session(
      config, ranks, {.device = test::device(), .findings = &findings, .evaluated_rows = 3});
}

void expect_same_bits(const Variant& v) {
  INFO(
      fmt::format("{} by {} in {} stages x {} data ranks x {} context x {} tensor, {} x {}, {}, {} "
                  "micro-batches",
                  v.preset, v.strategy, v.stages, v.data_ranks, v.context, v.tensor, v.schedule,
                  v.chunks, name_of(v.dtype), v.micro_batches));
  const Config config = base_of(v);
  Findings findings;
  const TrainedSession without = run(config, v.data_ranks, findings);
  const TrainedSession with =
      run(pipelined(config, v), v.stages * v.data_ranks * v.tensor * v.context, findings);
  CHECK(with.losses == without.losses);
  CHECK(with.norms == without.norms);
  CHECK((with.weights == without.weights));
  // Each stage adds up its layers' losses first.
  for (std::size_t i = 0; i < without.router_losses.size(); ++i) {
    CHECK(with.router_losses[i] == Approx(without.router_losses[i]).epsilon(1e-6));
    CHECK((without.router_losses[i] > 0.0) == v.balance.has_value());
  }
  CHECK(findings.wrong() == std::vector<std::string>{});
}

/// The peaks of every rank's second step, and its bytes, are those of a dry run.
void expect_dry_run(const Variant& v) {
  INFO(fmt::format("{} by {} in {} stages, {}", v.preset, v.strategy, v.stages, v.schedule));
  const Config config = pipelined(base_of(v), v);
  const int ranks = v.stages * v.data_ranks * v.tensor * v.context;
  const ResolvedConfig resolved = resolve(config);
  Findings findings;
  const auto compare = [&](TrainingSession& session, const BatchSource& source,
                           Communicator& world) {
    session.step(1, source);
    communication_stream().synchronize();  // the first gathers of the next step
    context().allocator().reset_peaks();
    const std::int64_t sent = world.bytes_sent();
    session.step(2, source);
    communication_stream().synchronize();
    const MemoryAccount& account = context().allocator().account();
    const StepMemory dry =
        dry_run(resolved, {.rank = world.rank(), .ranks = ranks, .device = {}, .threads = 1});
    const auto text = [](const MemoryAccount& memory, std::int64_t bytes) {
      std::string all = fmt::format("total {}, sent {}", memory.total.peak, bytes);
      for (const MemoryAccount::Line& line : memory.categories) {
        all += fmt::format(" {}", line.peak);
      }
      return all;
    };
    const std::string predicted = text(dry.account, dry.bytes_sent);
    const std::string measured = text(account, world.bytes_sent() - sent);
    findings.expect(predicted == measured, fmt::format("rank {}: predicted {}, measured {}",
                                                       world.rank(), predicted, measured));
  };
  test::with_session(config, ranks, compare);
  CHECK(findings.wrong() == std::vector<std::string>{});
}

std::string refusal(const Config& config, int ranks) {
  return test::error_of([&] {
    const ResolvedConfig run = resolve(config);
    check_model_keys(run);
    check_sharding(run, ranks);
    make_plan(make_model(run)->units(), run.sharding, {.ranks = ranks});
  });
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

TEST_CASE(
    "a pipeline has the same bits and predicted bytes: gradients of weights in a pass apart") {
  constexpr bool kReducedOnce = false;
  expect_same_bits({kLlama, 2, 1, 4, "ddp", "zero_bubble", DType::f32, 1, false, kReducedOnce});
  expect_same_bits({kLlama, 4, 2, 6, "zero1", "zero_bubble", DType::bf16, 1, false, kReducedOnce});
  expect_same_bits({kLlama, 4, 1, 5, "fsdp", "zero_bubble", DType::f32, 1, true, kReducedOnce});
  expect_same_bits(
      {kUntiedQwen3, 2, 2, 3, "hsdp", "zero_bubble", DType::f32, 1, false, kReducedOnce});
  expect_same_bits({kGpt2, 2, 2, 1, "ddp", "zero_bubble"});
}

TEST_CASE("a pipeline has the same bits and predicted bytes: tied embedding and head") {
  expect_same_bits({kGpt2, 2, 1, 3, "ddp"});
  expect_same_bits({kGpt2, 2, 2, 2, "zero1", "gpipe", DType::bf16});
  expect_same_bits({kGpt2, 2, 2, 3, "zero3", "1f1b", DType::bf16});
  expect_same_bits({kTiedLlama, 4, 2, 5, "fsdp", "1f1b", DType::f32, 1, /*recomputes=*/true});
  expect_same_bits({kTiedLlama, 2, 2, 1, "hsdp"});
  expect_same_bits({kGpt2, 2, 1, 4, "zero2", "interleaved", DType::f32, 2});
  expect_same_bits({kGpt2, 3, 1, 3, "ddp", "interleaved", DType::f32, 2});
}

TEST_CASE("a pipeline has the same bits and predicted bytes: tied ends in the parts of a grid") {
  const auto cut = [](Variant v, int context, int tensor) {
    v.context = context;
    v.tensor = tensor;
    v.grid = 4;
    expect_same_bits(v);
  };
  cut({kGpt2, 2, 1, 3, "ddp"}, 1, 1);
  cut({kGpt2, 2, 1, 2, "ddp", "gpipe", DType::bf16}, 1, 2);
  cut({kTiedLlama, 2, 2, 2, "fsdp"}, 2, 1);
  cut({kTiedLlama, 2, 1, 3, "ddp", "1f1b", DType::f32, 1, /*recomputes=*/true}, 2, 2);
  cut({kTiedLlama, 4, 1, 4, "zero1"}, 1, 2);
  cut({kGpt2, 2, 1, 4, "ddp", "interleaved", DType::f32, 2}, 2, 2);
}

TEST_CASE("a pipeline has the same bits and predicted bytes: mixtures of experts") {
  expect_same_bits({kQwen3, 2, 2, 2, "fsdp"});
  expect_same_bits({kLlama4, 4, 1, 4, "zero1", "1f1b", DType::bf16});
}

TEST_CASE("a pipeline has the same bits and predicted bytes: a balance of all layers' loads") {
  const auto with = [](Variant v, int tensor = 1) {
    v.balance = Balance::hf;
    v.tensor = tensor;
    v.grid = tensor > 1 ? 2 : 0;
    return v;
  };
  expect_same_bits(with({kQwen3, 2, 2, 3, "fsdp", "gpipe"}));
  expect_same_bits(with({kQwen3, 4, 1, 5, "zero1", "1f1b", DType::bf16, 1, /*recomputes=*/true}));
  expect_same_bits(with({kLlama4, 2, 1, 4, "ddp", "interleaved", DType::f32, 2}));
  expect_same_bits(
      with({kUntiedQwen3, 4, 1, 6, "zero2", "zero_bubble", DType::f32, 1, false, false}));
  expect_same_bits(with({kQwen3, 2, 1, 2, "ddp"}, /*tensor=*/2));
  expect_dry_run(with({kQwen3, 2, 2, 3, "fsdp", "1f1b", DType::bf16, 1, /*recomputes=*/true}));

  // A stage that is not trained sends its counts, and its losses are in the sum.
  Config config = base_of(with({kUntiedQwen3, 4, 1, 3}));
  config.model.frozen = "model.embed_tokens., model.layers.0., model.layers.1., model.layers.2.";
  Findings findings;
  const TrainedSession without = run(config, 1, findings);
  config.sharding.pipeline_parallel = 4;
  const TrainedSession found = run(config, 4, findings);
  CHECK(found.losses == without.losses);
  CHECK(found.router_losses[0] == Approx(without.router_losses[0]).epsilon(1e-6));
  CHECK((found.weights == without.weights));
  CHECK(findings.wrong() == std::vector<std::string>{});
}

TEST_CASE("a pipeline's memory and bytes are those of a dry run of each rank", "[cpu]") {
  expect_dry_run({kLlama, 2, 2, 4, "fsdp", "1f1b", DType::bf16, 1, /*recomputes=*/true});
  expect_dry_run({kLlama, 4, 1, 4, "ddp", "gpipe"});
  expect_dry_run({kGpt2, 4, 1, 5, "zero2"});
  expect_dry_run({kLlama, 2, 1, 4, "ddp", "interleaved", DType::f32, 3});
  expect_dry_run({kGpt2, 4, 1, 1, "ddp", "zero_bubble"});
  expect_dry_run({kLlama, 4, 1, 6, "zero1", "zero_bubble", DType::f32, 1, false, false});
  Variant tied{kTiedLlama, 2, 1, 3, "fsdp"};
  tied.tensor = tied.context = 2, tied.grid = 4;
  expect_dry_run(tied);
}

TEST_CASE("a pipeline of any number of stages adds micro-batches in one tree (train.elastic)") {
  Config config = base_of({kGpt2, 1, 1, 1});
  config.data.batch_size = 16;
  config.train.elastic = 8;
  const auto train = [&](int ranks, int stages) {
    config.sharding.pipeline_parallel = stages;
    return test::train_session(config, ranks, {.device = test::device()});
  };
  const TrainedSession alone = train(1, 1);
  CHECK((train(2, 2) == alone));
  CHECK((train(4, 2) == alone));
  CHECK((train(4, 4) == alone));
}

TEST_CASE("replicas of a stage are compared with each other") {
  Config config = base_of({kLlama, 2, 2, 2});
  config.sharding.check_replicas = 1;
  const TrainedSession without = test::train_session(config, 2);
  config.sharding.pipeline_parallel = 2;
  CHECK((test::train_session(config, 4) == without));
}

TEST_CASE("stages may have groups that other stages do not have, and any cuts and buckets") {
  Config config = base_of({kLlama, 2, 2, 2, "fsdp"});
  config.sharding.rules = parse_placement_rules("model.layers.0.* -> ddp, *.norm.weight -> zero1");
  config.sharding.buckets = "100000";
  Findings findings;
  const TrainedSession without = run(config, 2, findings);
  config.sharding.pipeline_parallel = 2;
  for (const char* stages : {"", "layers.0", "head"}) {
    config.sharding.pipeline_stages = stages;
    const TrainedSession with = run(config, 4, findings);
    CHECK(with.losses == without.losses);
    CHECK(with.norms == without.norms);
    CHECK((with.weights == without.weights));
  }
  CHECK(findings.wrong() == std::vector<std::string>{});
}

TEST_CASE("a pipeline has the same bits with ranks that share out channels or tokens") {
  for (const char* strategy : {"ddp", "fsdp"}) {
    Config config = base_of({kLlama, 2, 2, 2, strategy});
    config.model.kv_heads = 2;
    config.data.sequence_length = 8;
    config.sharding.grid = 2;
    const auto expect_same = [&](std::int64_t tensors, std::int64_t contexts) {
      INFO(fmt::format("{}, tensor {}, context {}", strategy, tensors, contexts));
      config.sharding.tensor_parallel = tensors;
      config.sharding.context_parallel = contexts;
      config.sharding.pipeline_parallel = 1;
      const TrainedSession without = test::train_session(config, 4);
      config.sharding.pipeline_parallel = 2;
      CHECK((test::train_session(config, 8) == without));
    };
    expect_same(2, 1);
    expect_same(1, 2);
  }
}

TEST_CASE("a pipeline trains what is not frozen, and sends no gradients below") {
  Config config = base_of({kLlama, 4, 1, 3});
  config.model.frozen = "model.embed_tokens., model.layers.0., model.layers.1., model.layers.2.";
  Findings findings;
  const TrainedSession without = run(config, 1, findings);
  config.sharding.pipeline_parallel = 4;
  const TrainedSession with = run(config, 4, findings);
  CHECK(with.losses == without.losses);
  CHECK(with.norms == without.norms);
  CHECK((with.weights == without.weights));
  CHECK(findings.wrong() == std::vector<std::string>{});
  // Rank 1 sends no gradients of 3 micro-batches of 2 x 9 tokens with 16 channels.
  const auto sent = [](const Config& one) {
    const ResolvedConfig run = resolve(one);
    const Plan plan = make_plan(make_model(run)->units(), run.sharding, {.ranks = 4});
    return footprint_of(plan, /*rank=*/1, /*state=*/0).bytes_sent;
  };
  Config trained = config;
  trained.model.frozen.clear();
  CHECK(sent(trained) - sent(config) == 3 * 2 * 9 * 16 * 4);
}

TEST_CASE("messages and passes of a pipeline that come late change no bit", "[cpu]") {
  for (const Variant& v : {Variant{kGpt2, 4, 1, 6, "zero2"},
                           Variant{kLlama, 2, 2, 4, "fsdp", "interleaved", DType::f32, 2},
                           Variant{kLlama, 4, 1, 4, "ddp", "zero_bubble", DType::f32, 1, false,
                                   /*each_reduced=*/false}}) {
    const Config config = pipelined(base_of(v), v);
    const int ranks = v.stages * v.data_ranks;
    const TrainedSession prompt = test::train_session(config, ranks);
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      CHECK((test::train_session(config, ranks, {.delay_seed = seed}) == prompt));
    }
  }
}

TEST_CASE("a run in a pipeline is saved and continued with another number of stages") {
  const test::TemporaryDirectory folder;
  Config config = test::tiny_run(folder);
  config.runtime.device = test::device();
  config.data.accumulation_steps = 2;
  config.train.steps = 4;
  config.train.eval_every = 2;
  config.train.checkpoint_every = 2;
  config = variant_of(config, "zero1");
  config.runtime.ranks = 1;
  train(config);
  Config piped = config;
  piped.runtime.ranks = 2;
  piped.sharding.pipeline_parallel = 2;
  piped.train.dir = folder / "piped";
  train(piped);
  CHECK((test::saved_weights(piped.train.dir) == test::saved_weights(config.train.dir)));
  CHECK(test::results_of(piped.train.dir) == test::results_of(config.train.dir));
  // From the middle of the run of one rank, with three stages.
  Config resumed = config;
  resumed.runtime.ranks = 3;
  resumed.sharding.pipeline_parallel = 3;
  resumed.train.resume = (config.train.dir / "step-000002").string();
  resumed.train.dir = folder / "resumed";
  train(resumed);
  CHECK((test::saved_weights(resumed.train.dir) == test::saved_weights(config.train.dir)));
}

TEST_CASE("a pipeline that cannot be is refused in one line") {
  const Variant v{kGpt2, 2, 1, 2};
  Config config = pipelined(base_of(v), v);
  CHECK(refusal(config, 2) == "no error");
  CHECK_THAT(refusal(config, 3), Contains("the 3 ranks are no multiple of"));
  config.sharding.reduce = ReduceAfter::last_micro_batch;
  CHECK_THAT(refusal(config, 2), Contains("tied embedding and head are on two stages"));
  config.sharding.reduce = ReduceAfter::every_micro_batch;
  config.sharding.pipeline_schedule = PipelineSchedule::zero_bubble;
  CHECK_THAT(refusal(config, 2), Contains("set sharding.reduce=last_micro_batch"));
  config.sharding.pipeline_schedule = PipelineSchedule::one_forward_one_backward;
  config.sharding.pipeline_chunks = 2;
  CHECK_THAT(refusal(config, 2), Contains("choose interleaved"));
  config.sharding.pipeline_schedule = PipelineSchedule::interleaved;
  config.data.accumulation_steps = 3;
  CHECK_THAT(refusal(config, 2), Contains("needs a multiple of 2 micro-batches"));
  config.sharding.pipeline_parallel = 1;
  CHECK_THAT(refusal(config, 2), Contains("sharding.pipeline_chunks 2 is for several stages"));
  config.sharding.pipeline_chunks = 1;
  config.sharding.pipeline_parallel = 8;
  CHECK_THAT(refusal(config, 8), Contains("8 stages are more than the model's 6 parts"));
  config.sharding.pipeline_parallel = 2;
  config.sharding.pipeline_stages = "h.9";
  CHECK_THAT(refusal(config, 2), Contains("'h.9' is no unit of this model"));
  config.sharding.pipeline_stages = "h.1,h.2";
  CHECK_THAT(refusal(config, 2), Contains("names 3 stages with the first, and the pipeline has 2"));
  config.sharding.pipeline_stages = "head";
  config.sharding.pipeline_schedule = PipelineSchedule::gpipe;
  CHECK(refusal(config, 2) == "no error");
}

}  // namespace tessera
