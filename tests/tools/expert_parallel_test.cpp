// Expert parallelism changes neither a loss nor a weight, and its bytes are as predicted.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <map>

#include "models/hugging_face.h"
#include "runtime/safetensors.h"
#include "sharding/comm/threads/threads.h"
#include "sharding/plan/expert_traffic.h"
#include "sharding/plan/footprint.h"
#include "tests/support/device.h"
#include "tests/support/findings.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/tools/sessions.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/sharding_options.h"
#include "tools/generate/inference.h"
#include "tools/measure/workload.h"
#include "tools/plan/plan.h"
#include "tools/plan/prediction.h"
#include "tools/train/resolve.h"
#include "tools/train/resolve_ranks.h"
#include "tools/train/session.h"
#include "tools/train/trainer.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::Findings;
using test::TemporaryDirectory;
using test::TrainedSession;

Config tiny(const std::string& preset, int ranks) {
  Config config;
  config.model = test::tiny_model(preset);
  config.model.experts = 8;
  config.model.vocab_size = 41;
  config.moe.balance = Balance::bias;
  config.moe.bias_rate = 0.01;
  config.data = {.batch_size = 2 * ranks, .sequence_length = 9};
  config.optimizer.learning_rate = 1e-2;
  return config;
}

/// Two steps, and the loss of an evaluation behind those of the steps.
TrainedSession run(const Config& config, int ranks, Findings& findings) {
  return test::train_session(
      config, ranks, {.device = test::device(), .findings = &findings, .evaluated_rows = 3});
}

struct Variant {
  const char* preset;
  int ranks, expert_parallel;
  const char* strategy;
  DType dtype = DType::f32;
  int accumulation = 1;
  bool each_reduced = true;
  bool recomputes = false;
};

void expect_same_bits(const Variant& v) {
  INFO(fmt::format("{} by {} on {} ranks, experts over {}, {}, {} micro-batches", v.preset,
                   v.strategy, v.ranks, v.expert_parallel, name_of(v.dtype), v.accumulation));
  Config config = variant_of(tiny(v.preset, v.ranks), v.strategy);
  config.runtime.compute_dtype = v.dtype;
  config.data.accumulation_steps = v.accumulation;
  config.data.batch_size *= v.accumulation;
  config.sharding.reduce =
      v.each_reduced ? ReduceAfter::every_micro_batch : ReduceAfter::last_micro_batch;
  if (v.recomputes) config.sharding.activation_checkpointing = {.first = 0, .every = 1};
  Findings findings;
  const TrainedSession without = run(config, v.ranks, findings);
  config.sharding.expert_parallel = v.expert_parallel;
  const TrainedSession with = run(config, v.ranks, findings);
  CHECK(with.losses == without.losses);
  CHECK(with.norms == without.norms);
  CHECK((with.weights == without.weights));
  CHECK(findings.wrong() == std::vector<std::string>{});
}

constexpr const char* kQwen3 = "qwen3-moe-mini";
constexpr const char* kLlama4 = "llama4-mini";

}  // namespace

TEST_CASE("expert parallelism has the same bits and predicted bytes: two ranks, every strategy") {
  expect_same_bits({kQwen3, 2, 2, "ddp"});
  expect_same_bits({kLlama4, 2, 2, "zero1", DType::bf16});
  expect_same_bits({kQwen3, 2, 2, "zero2", DType::f32, 2});
  expect_same_bits({kLlama4, 2, 2, "zero3", DType::bf16, 2, /*each_reduced=*/false});
  expect_same_bits({kQwen3, 2, 2, "fsdp", DType::bf16, 1, true, /*recomputes=*/true});
}

TEST_CASE("expert parallelism has the same bits and predicted bytes: four ranks") {
  expect_same_bits({kQwen3, 4, 2, "fsdp", DType::f32, 2});
  expect_same_bits({kLlama4, 4, 4, "fsdp_flat", DType::f32, 2, /*each_reduced=*/false, true});
  expect_same_bits({kQwen3, 4, 2, "hsdp", DType::bf16});
  expect_same_bits({kLlama4, 4, 2, "ddp", DType::f32, 2, /*each_reduced=*/false});
  if (!test::kOnGpu) {  // the emulated GPU is slow
    expect_same_bits({kQwen3, 4, 4, "zero1", DType::bf16, 2});
    expect_same_bits({kLlama4, 4, 2, "zero3"});
  }
}

TEST_CASE(
    "one gradient from all rows: the same bits under every strategy, those of exact to rounding") {
  Config config = tiny(kQwen3, 4);
  config.sharding.expert_parallel = 2;
  Findings findings;
  const TrainedSession exact = run(variant_of(config, "ddp"), 4, findings);
  config.sharding.expert_sums = ExpertSums::fast;
  const TrainedSession fast = run(variant_of(config, "ddp"), 4, findings);
  CHECK(fast.losses[0] == exact.losses[0]);  // of weights that no gradient has changed
  CHECK(fast.weights != exact.weights);
  for (std::size_t step = 0; step < fast.norms.size(); ++step) {
    CHECK(fast.norms[step] == Approx(exact.norms[step]).epsilon(1e-4));
  }
  for (const char* strategy : {"zero2", "fsdp", "hsdp"}) {
    CAPTURE(strategy);
    const TrainedSession found = run(variant_of(config, strategy), 4, findings);
    CHECK(found.losses == fast.losses);
    CHECK(found.norms == fast.norms);
    CHECK((found.weights == fast.weights));
  }
  CHECK(findings.wrong() == std::vector<std::string>{});
}

TEST_CASE("rows that travel in two pieces have the same bits on 2 and on 4 expert ranks") {
  for (const char* preset : {kQwen3, kLlama4}) {
    CAPTURE(preset);
    Config config = variant_of(tiny(preset, 4), "fsdp");
    config.sharding.expert_parallel = 2;
    Findings findings;
    const TrainedSession whole = run(config, 4, findings);
    config.sharding.expert_pieces = 2;
    const TrainedSession two = run(config, 4, findings);
    config.sharding.expert_parallel = 4;
    const TrainedSession four = run(variant_of(config, "ddp"), 4, findings);
    CHECK(two.losses[0] == whole.losses[0]);
    CHECK(two.norms[0] == Approx(whole.norms[0]).epsilon(1e-4));
    CHECK(four.losses == two.losses);
    CHECK(four.norms == two.norms);
    CHECK((four.weights == two.weights));
    CHECK(findings.wrong() == std::vector<std::string>{});
  }
}

TEST_CASE("a copy for each rank changes no bit, with the bytes that are predicted") {
  for (const char* preset : {kQwen3, kLlama4}) {
    CAPTURE(preset);
    Config config = variant_of(tiny(preset, 4), "fsdp");
    config.model.experts_per_token = 3;
    config.sharding.activation_checkpointing = {.first = 1, .every = 1};
    Findings findings;
    const TrainedSession without = run(config, 4, findings);
    config.sharding.expert_parallel = 2;
    config.sharding.expert_copies = ExpertCopies::each_rank;
    const TrainedSession with = run(config, 4, findings);
    CHECK(with.losses == without.losses);
    CHECK(with.norms == without.norms);
    CHECK((with.weights == without.weights));
    CHECK(findings.wrong() == std::vector<std::string>{});
  }
}

TEST_CASE("the bytes of travelling rows are exact for known counts") {
  // Forced, token n takes experts n k, ..., n k + k - 1, modulo 8. So of the 36 rows of 18 tokens with
  // two experts each, the first four experts get 20 and the others 16; of 18 rows 10 and 8. A token's two
  // experts are on one rank, so copies are half as many. Tensor ranks send the same rows, and get sums of their
  // channels back.
  struct Known {
    const char* preset;
    std::int64_t per_token, to_first_half, to_second_half;
    ExpertCopies copies;
    std::int64_t pieces;
    int tensor = 1;
  };
  const Known all[] = {{kQwen3, 2, 20, 16, ExpertCopies::each_expert, 1},
                       {kQwen3, 2, 20, 16, ExpertCopies::each_rank, 1},
                       {kQwen3, 2, 20, 16, ExpertCopies::each_rank, 2},
                       {kLlama4, 1, 10, 8, ExpertCopies::each_expert, 1},
                       {kLlama4, 1, 10, 8, ExpertCopies::each_expert, 2},
                       {kLlama4, 1, 10, 8, ExpertCopies::each_rank, 1},
                       {kQwen3, 2, 20, 16, ExpertCopies::each_expert, 1, 2},
                       {kQwen3, 2, 20, 16, ExpertCopies::each_rank, 2, 2},
                       {kLlama4, 1, 10, 8, ExpertCopies::each_rank, 1, 2}};
  for (const Known& known : all) {
    Config config = variant_of(tiny(known.preset, 2), "fsdp");
    config.model.experts_per_token = known.per_token;
    config.moe.force_balance = true;
    config.sharding.expert_parallel = 2;
    config.sharding.expert_copies = known.copies;
    config.sharding.expert_pieces = known.pieces;
    config.sharding.tensor_parallel = known.tensor;
    config.sharding.activation_checkpointing = {.first = 1, .every = 1};
    Findings findings;
    const int ranks = 2 * known.tensor;
    run_ranks({.ranks = ranks, .device = test::device(), .threads = 1}, [&](Communicator& world) {
      const ResolvedConfig run = resolve(config);
      TrainingSession session(run, world);
      const TransformerShape shape = session.model().shape();
      session.step(1, random_tokens(config.data, shape.vocab_size));
      const ExpertTraffic traffic = expert_traffic(shape, run.sharding);
      const bool first = world.rank() < known.tensor;
      const std::int64_t sent = first ? known.to_second_half : known.to_first_half;
      const TravellingRows rows{.sent = sent,
                                .received = first ? known.to_first_half : known.to_second_half,
                                .copies = sent / known.per_token};
      // The last layer is computed again in backward.
      const std::int64_t predicted = (shape.experts.layers + 1) * traffic.forward(rows) +
                                     shape.experts.layers * traffic.backward(rows);
      const std::int64_t measured = world.bytes_sent(Collective::all_to_all);
      findings.expect(predicted == measured, fmt::format("{}: predicted {}, measured {}",
                                                         known.preset, predicted, measured));
    });
    CHECK(findings.wrong() == std::vector<std::string>{});
  }
}

TEST_CASE("a run with expert parallelism trains, is saved and continued as one without") {
  const TemporaryDirectory folder;
  Config config = test::tiny_run(folder);
  config.model = tiny(kQwen3, 4).model;
  config.runtime.device = test::device();
  config.runtime.ranks = 4;
  config.runtime.threads = 1;
  config.train.steps = 3;
  config.train.eval_every = 2;
  config = variant_of(config, "fsdp");
  train(config);
  Config with = config;
  with.sharding.expert_parallel = 2;
  with.train.dir = folder / "with";
  train(with);
  CHECK((test::saved_weights(with.train.dir) == test::saved_weights(config.train.dir)));
  CHECK(test::metrics_of(with.train.dir).back()["val_loss"] ==
        test::metrics_of(config.train.dir).back()["val_loss"]);

  // Each rank reads its experts; four ranks share them out as the run did, three do not.
  CHECK(inference_sharding(with.train.dir / "model", DType::f32, 4).expert_parallel == 2);
  CHECK(inference_sharding(with.train.dir / "model", DType::f32, 3).expert_parallel == 1);
  Config next = with;
  next.model = {.init_from = with.train.dir / "model"};
  next.optimizer.learning_rate = 0.0;
  next.moe.bias_rate = 0.0;
  next.train.steps = 1;
  next.train.dir = folder / "next";
  train(next);
  CHECK((test::saved_weights(next.train.dir) == test::saved_weights(config.train.dir)));
}

TEST_CASE("ranks that generate share out experts, with the bits of one rank") {
  const TemporaryDirectory folder;
  Config config = test::tiny_run(folder);
  config.model = tiny(kLlama4, 2).model;
  config.runtime.device = test::device();
  config.runtime.ranks = 2;
  config.runtime.threads = 1;
  config.train.steps = 2;
  config = variant_of(config, "ddp");
  config.sharding.expert_parallel = 2;
  train(config);
  const auto loss_on = [&](int ranks) {
    std::vector<float> losses(static_cast<std::size_t>(ranks));
    run_model({.model = config.train.dir,
               .device = test::device().is_cpu() ? "cpu" : "cuda",
               .threads = 1,
               .ranks = ranks},
              [&](LanguageModel& model) {
                const auto batch =
                    random_tokens({.batch_size = 2, .sequence_length = 20}, 11).load(1, 0, 2);
                losses[static_cast<std::size_t>(context().rank())] =
                    model.loss(batch.inputs, batch.targets, 1.0, /*training=*/false, {})
                        .data()
                        .item<float>();
              });
    return losses;
  };
  const float alone = loss_on(1)[0];
  CHECK(loss_on(2) == std::vector<float>(2, alone));
}

TEST_CASE("plan prints where experts are, and the bytes of rows if all experts get equally many") {
  Config config = variant_of(tiny(kQwen3, 8), "fsdp");
  config.model.experts_per_token = 2;
  config.sharding.expert_parallel = 4;
  config.sharding.activation_checkpointing = {.first = 1, .every = 1};
  const std::string page = plan(config, {.ranks = 8});
  INFO(page);
  CHECK_THAT(page, Contains("mesh        replica 1 x shard 2 x expert 4"));
  CHECK_THAT(page, Contains("fsdp, experts over 4 ranks: "));
  CHECK_THAT(page, Contains("experts     1/4 of each layer's, whole"));
  // 18 tokens with two rows each, of which 27 go to other ranks and as many come; 16 channels and a
  // weight each, offsets of two experts and their end; two layers, the second computed again.
  const std::int64_t forward = 3 * 4 * 3 + 4 * (17 * 27 + 16 * 27);
  const std::int64_t backward = 4 * (16 * 27 + 17 * 27);
  CHECK_THAT(page,
             Contains(fmt::format("rows to experts and back: {:.2f} MiB more per rank and step",
                                  static_cast<double>(3 * forward + 2 * backward) / 0x1p20)));
}

TEST_CASE("expert_parallel is refused where ranks or experts cannot be shared out") {
  const auto refusal = [](const Config& config, int ranks) {
    return test::error_of([&] {
      const ResolvedConfig run = resolve(config);
      check_sharding(run, ranks);
      make_plan(make_model(run)->units(), run.sharding, {.ranks = ranks});
    });
  };
  Config config = variant_of(tiny(kQwen3, 4), "fsdp");
  config.sharding.expert_parallel = 4;
  CHECK(refusal(config, 4) == "no error");
  CHECK_THAT(refusal(config, 6),
             Contains("sharding.expert_parallel 4 does not divide the 6 ranks into equal groups"));
  config.sharding.expert_pieces = 3;
  CHECK_THAT(refusal(config, 4), Contains("sharding.expert_pieces 3 is no power of two"));
  config.sharding.expert_pieces = 2;
  config.train.elastic = 4;
  CHECK_THAT(refusal(config, 4),
             Contains("leave out sharding.expert_sums and sharding.expert_pieces"));
  config.sharding.expert_pieces = 1;
  config.train.elastic = 0;
  config.model.experts = 6;
  CHECK_THAT(refusal(config, 4), Contains("sharding.expert_parallel 4 does not divide the 6 "
                                          "experts of 'model.layers.0.mlp.experts.gate_up_proj'"));
  config.model = {.preset = "gpt2-mini"};
  config.moe = {};
  CHECK_THAT(refusal(config, 4), Contains("is for a mixture of experts; this model has none"));
  config = variant_of(tiny(kQwen3, 8), "hsdp");
  config.sharding.expert_parallel = 4;
  CHECK(refusal(config, 8) == "no error");
  config.sharding.shard_size = 2;
  CHECK_THAT(refusal(config, 8),
             Contains("sharding.shard_size 2 is no multiple of sharding.expert_parallel 4"));
}

TEST_CASE("expert parallelism has the same bits and predicted bytes: eight ranks", "[cpu]") {
  expect_same_bits({kQwen3, 8, 4, "hsdp"});
  expect_same_bits({kLlama4, 8, 2, "fsdp", DType::bf16});
  expect_same_bits({kQwen3, 8, 4, "ddp"});
}

}  // namespace tessera
