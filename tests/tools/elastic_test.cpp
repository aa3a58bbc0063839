// train.elastic: the same bits on any number of ranks.
//
// Expected bits are those of strategy single on one rank, which adds eight micro-batches by itself. On
// eight ranks the sums over ranks are all there is, so the two check each other.
#include <catch2/catch.hpp>

#include "runtime/random.h"
#include "sharding/comm/threads/threads.h"
#include "sharding/plan/footprint.h"
#include "sharding/plan/plan.h"
#include "tests/support/device.h"
#include "tests/tools/sessions.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/sharding_options.h"
#include "tools/plan/dry_run.h"
#include "tools/plan/plan.h"
#include "tools/train/resolve_ranks.h"
#include "tools/train/session.h"
#include "tools/train/trainer.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::TrainedSession;

constexpr std::int64_t kVocabulary = 37;

/// Eight micro-batches of two rows, in widths that no number of ranks divides.
Config small_model(const std::string& preset) {
  Config config;
  config.model = {.preset = preset,
                  .layers = 2,
                  .heads = 2,
                  .width = 12,
                  .context = 12,
                  .vocab_size = kVocabulary};
  if (preset == "gpt2-mini") config.model.dropout = 0.2;
  if (preset.find("moe") != preset.npos || preset.find("llama4") != preset.npos) {
    config.model.head_size = 6;
    config.model.experts = 8;
    config.model.expert_width = 7;
    config.moe.z_loss = 0.01;
    config.moe.loss_coefficient = 0.1;
  }
  config.data = {.batch_size = 16, .sequence_length = 9};
  config.optimizer.clip_norm = 0.1;
  config.train.elastic = 8;
  return config;
}

TrainedSession train_session(const Config& config, int ranks) {
  const std::int64_t length = config.data.sequence_length;
  const BatchSource source =
      test::two_documents(length, kVocabulary, [=](std::int64_t row) { return row % length; });
  return test::train_session(config, ranks, {.device = test::device(), .source = source});
}

void check_bits(const Config& base, std::initializer_list<const char*> strategies,
                int expert_parallel = 1) {
  const TrainedSession expected = train_session(base, 1);
  REQUIRE(expected.losses.size() == 2);
  REQUIRE(expected.losses[0] != expected.losses[1]);
  for (const char* strategy : strategies) {
    for (const int ranks : {1, 2, 4, 8}) {
      if (ranks < expert_parallel) continue;
      CAPTURE(base.model.preset, strategy, ranks);
      Config config = variant_of(base, strategy);
      config.sharding.expert_parallel = expert_parallel;
      const TrainedSession found = train_session(config, ranks);
      CHECK(found.losses == expected.losses);
      CHECK(found.router_losses == expected.router_losses);
      CHECK(found.norms == expected.norms);
      CHECK((found.weights == expected.weights));
    }
  }
}

}  // namespace

TEST_CASE("elastic: gpt2 with dropout has the same bits on 1, 2, 4 and 8 ranks") {
  check_bits(small_model("gpt2-mini"),
             {"ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp_flat", "hsdp"});
}

TEST_CASE("elastic: Muon has the same bits on 1, 2, 4 and 8 ranks") {
  Config config = small_model("gpt2-mini");
  config.optimizer.name = OptimizerKind::muon;
  check_bits(config, {"ddp", "zero2", "zero3", "fsdp", "hsdp"});
}

TEST_CASE("elastic: qwen3-moe has the same bits on 1, 2, 4 and 8 ranks") {
  Config config = small_model("qwen3-moe-mini");
  config.moe.balance = Balance::lagged;
  check_bits(config, {"ddp", "zero3", "fsdp", "hsdp"});
  config.moe.balance = Balance::bias;
  config.runtime.compute_dtype = DType::bf16;
  check_bits(config, {"fsdp"});
}

TEST_CASE("elastic: ranks that share out experts have the bits of one rank") {
  Config config = small_model("qwen3-moe-mini");
  config.moe.balance = Balance::hf;
  check_bits(config, {"ddp", "fsdp"}, /*expert_parallel=*/2);
  config.runtime.compute_dtype = DType::bf16;
  check_bits(config, {"hsdp"}, /*expert_parallel=*/4);
}

TEST_CASE("elastic: the other families, in bf16 and with recomputation") {
  for (const char* preset : {"llama3-mini", "llama4-mini"}) {
    Config config = small_model(preset);
    config.runtime.compute_dtype = DType::bf16;
    config.sharding.activation_checkpointing = parse_checkpointing("full").value();
    check_bits(config, {"ddp", "fsdp"});
  }
}

TEST_CASE("elastic: the gradient is that of one pass over the whole batch", "[cpu]") {
  Config config = small_model("gpt2-mini");
  config.model.dropout = 0.0;
  const TrainedSession elastic = train_session(variant_of(config, "ddp"), 2);
  config.train.elastic = 0;
  const TrainedSession whole = train_session(config, 1);
  for (int step = 0; step < 2; ++step) {
    CHECK(elastic.losses[step] == Approx(whole.losses[step]).epsilon(1e-5));
    CHECK(elastic.norms[step] == Approx(whole.norms[step]).epsilon(1e-4));
  }
}

TEST_CASE("elastic: the plan has the bytes of a step", "[cpu]") {
  for (const char* preset : {"gpt2-mini", "qwen3-moe-mini"}) {
    for (const char* strategy : {"ddp", "fsdp", "zero3"}) {
      for (const int ranks : {1, 2, 4, 8}) {
        CAPTURE(preset, strategy, ranks);
        const ResolvedConfig run =
            on_ranks(resolve(variant_of(small_model(preset), strategy)), ranks);
        const auto model = make_model(run);
        const Plan sharded =
            make_plan(model->units(), run.sharding, {.ranks = ranks, .device = Device{}});
        const Footprint predicted = footprint_of(sharded, 0);
        const StepMemory step = dry_run(shortened(run, ranks), {.ranks = ranks, .threads = 1});
        CHECK(step.account[Category::gradients].at_peak == predicted.gradients);
        CHECK(step.bytes_sent == predicted.bytes_sent);
      }
    }
  }
}

TEST_CASE("elastic: more micro-batches on a rank cost a gradient for each doubling", "[cpu]") {
  const auto gradients = [](int ranks) {
    const ResolvedConfig run =
        on_ranks(resolve(variant_of(small_model("gpt2-mini"), "ddp")), ranks);
    const auto model = make_model(run);
    return footprint_of(make_plan(model->units(), run.sharding, {.ranks = ranks}), 0).gradients;
  };
  std::int64_t elements = 0;
  const auto model = make_model(resolve(small_model("gpt2-mini")));
  for (const Parameter& parameter : parameters_of(*model)) elements += parameter.numel();
  CHECK(gradients(4) - gradients(8) == 4 * elements);
  CHECK(gradients(2) - gradients(4) == 4 * elements);
  CHECK(gradients(1) - gradients(2) == 4 * elements);
  Config config = variant_of(small_model("gpt2-mini"), "fsdp");
  CHECK_THAT(plan(config, {.ranks = 2}),
             Contains("elastic     4 micro-batches per rank in a binary tree, 1 partial sum kept"));
}

TEST_CASE("elastic: a run goes on with 2, 4 and 1 ranks and ends with the same bits", "[cpu]") {
  const test::TemporaryDirectory folder;
  Config config = test::tiny_run(folder);
  config.train.steps = 6;
  config.train.eval_every = 0;
  config.train.checkpoint_every = 2;
  config.train.elastic = 4;
  config.runtime.threads = 1;
  config.runtime.ranks = 4;
  config.sharding.strategy = StrategyKind::fsdp;
  config.optimizer.schedule = ScheduleKind::constant;
  train(config);
  Config changing = config;
  changing.train.dir = folder / "changing";
  const auto run_until = [&](std::int64_t step, int ranks, const char* strategy) {
    Config run = variant_of(changing, strategy);
    run.runtime.ranks = ranks;
    run.train.steps = step;
    train(run);
  };
  run_until(2, 2, "fsdp");
  run_until(4, 4, "zero3");
  run_until(6, 1, "ddp");
  CHECK(test::results_of(changing.train.dir) == test::results_of(config.train.dir));
  CHECK(test::model_bytes(changing.train.dir) == test::model_bytes(config.train.dir));
  changing.runtime.ranks = 2;
  changing.train.elastic = 2;
  CHECK_THROWS_WITH(train(changing), Contains("train.elastic is '2', but '4' in"));
}

TEST_CASE("elastic: keys that contradict it are named", "[cpu]") {
  const auto refused = [](auto change, int ranks, const std::string& message) {
    Config config = variant_of(small_model("gpt2-mini"), "fsdp");
    change(config);
    CHECK_THROWS_WITH(check_ranks(resolve(config), ranks), Contains(message));
  };
  refused([](Config& c) { c.train.elastic = 6; }, 2, "train.elastic: 6 is no power of two");
  refused([](Config&) {}, 3, "train.elastic: 8 is no multiple of the number of ranks, 3");
  refused([](Config&) {}, 16, "train.elastic: 8 is no multiple of the number of ranks, 16");
  refused([](Config& c) { c.data.accumulation_steps = 2; }, 2,
          "8 takes the place of data.accumulation_steps, which is 2; leave that key out");
  refused([](Config& c) { c.data.batch_size = 12; }, 2,
          "data.batch_size 12 is not a multiple of train.elastic 8");
  refused([](Config& c) { c.sharding.reduce = ReduceAfter::last_micro_batch; }, 2,
          "leave out sharding.reduce");
  refused([](Config& c) { c.sharding.sum_replicas_once = true; }, 2, "sharding.sum_replicas_once");
  refused([](Config& c) { c.sharding.reduce_dtype = DType::bf16; }, 2,
          "train.elastic needs gradients sent in f32");
  refused(
      [](Config& c) { c.sharding.rules = parse_placement_rules("*.bias -> ddp reduce_dtype=f16"); },
      2, "train.elastic needs gradients sent in f32");
}

}  // namespace tessera
