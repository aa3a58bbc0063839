// Context parallelism: with sharding.grid the same bits on 1, 2, 4 and 8 ranks, and bytes as predicted.
//
// Expected bits are those of one rank, which has every leaf of a row itself.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "runtime/random.h"
#include "sharding/comm/threads/threads.h"
#include "sharding/plan/footprint.h"
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
using test::Findings;
using test::TrainedSession;

constexpr std::int64_t kVocabulary = 37;
constexpr std::int64_t kLength = 32;

/// Two rows of 32 tokens in two layers.
Config tiny(const std::string& preset) {
  Config config;
  config.model = test::tiny_model(preset, kLength);
  config.model.vocab_size = kVocabulary;
  config.data = {.batch_size = 2, .sequence_length = kLength};
  config.optimizer.learning_rate = 1e-2;
  config.optimizer.clip_norm = 0.1;
  config.sharding.grid = 8;
  return config;
}

/// Two steps, and the loss of an evaluation behind those of the steps.
TrainedSession run(const Config& config, int ranks, bool documents = false) {
  Findings findings;
  test::Steps steps{
      .device = test::device(), .findings = &findings, .evaluated_rows = config.data.batch_size};
  if (documents) {
    steps.source = test::two_documents(kLength, kVocabulary,
                                       [](std::int64_t row) { return 5 + 14 * (row % 2); });
  }
  const TrainedSession trained = test::train_session(config, ranks, steps);
  CHECK(findings.wrong() == std::vector<std::string>{});
  return trained;
}

void expect_equal(const TrainedSession& found, const TrainedSession& expected) {
  CHECK(found.losses == expected.losses);
  CHECK(found.norms == expected.norms);
  CHECK(found.router_losses == expected.router_losses);
  CHECK((found.weights == expected.weights));
}

/// The same bits on `ranks` ranks, which share out tokens, as on one for each row.
void expect_same_bits(const Config& base, std::initializer_list<int> context_ranks,
                      std::initializer_list<const char*> strategies, bool documents = false) {
  const TrainedSession expected = run(base, 1, documents);
  REQUIRE(expected.losses[0] != expected.losses[1]);
  for (const char* strategy : strategies) {
    for (const int ranks : context_ranks) {
      INFO(fmt::format("{} by {} on {} ranks", base.model.preset, strategy, ranks));
      Config config = variant_of(base, strategy);
      config.sharding.context_parallel = ranks;
      expect_equal(run(config, ranks, documents), expected);
    }
  }
}

}  // namespace

TEST_CASE("context: a rank has pieces from both ends of a row", "[cpu]") {
  const auto places = [](int rank) {
    const TokenCut cut{.ranks = 2, .rank = rank, .leaves = 2};
    std::vector<std::int64_t> found;
    for (std::int64_t j = 0; j < cut.pieces(); ++j) found.push_back(cut.place_of(j));
    return found;
  };
  CHECK(places(0) == std::vector<std::int64_t>{0, 7, 1, 6});
  CHECK(places(1) == std::vector<std::int64_t>{2, 5, 3, 4});
}

TEST_CASE("context: gpt2 has the same bits on 1, 2, 4 and 8 ranks") {
  expect_same_bits(tiny("gpt2-mini"), {1, 2, 4, 8}, {"ddp", "fsdp"});
}

TEST_CASE("context: llama has the same bits on 1, 2, 4 and 8 ranks") {
  expect_same_bits(tiny("llama3-mini"), {1, 2, 4}, {"ddp", "zero3"});
}

TEST_CASE("context: keys that travel head by head have the bits of those that travel together") {
  for (const char* preset : {"gpt2-mini", "qwen3-mini", "llama4-mini"}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      INFO(preset << " in " << name_of(dtype));
      Config config = tiny(preset);
      config.runtime.compute_dtype = dtype;
      const TrainedSession expected = run(config, 1, /*documents=*/true);
      config = variant_of(config, "fsdp");
      config.sharding.context_exchange = KeyExchange::heads;
      for (const int ranks : {1, 2, 4}) {
        config.sharding.context_parallel = ranks;
        expect_equal(run(config, ranks, /*documents=*/true), expected);
      }
    }
  }
}

TEST_CASE("context: mixtures of experts have the same bits") {
  for (const char* preset : {"qwen3-moe-mini", "llama4-mini"}) {
    Config config = tiny(preset);
    config.moe.balance = Balance::lagged;
    config.moe.z_loss = 0.01;
    config.moe.loss_coefficient = 0.1;
    expect_same_bits(config, {2, 4}, {"ddp", "fsdp"});
  }
}

TEST_CASE("context: packed documents have the same bits") {
  expect_same_bits(tiny("llama3-mini"), {2, 4}, {"fsdp"}, /*documents=*/true);
  expect_same_bits(tiny("llama4-mini"), {2, 4}, {"fsdp"}, /*documents=*/true);
  expect_same_bits(tiny("gemma3-mini"), {2, 4}, {"fsdp"}, /*documents=*/true);
}

TEST_CASE("context: whole rows in one sum agree with cut rows to rounding") {
  for (const char* preset : {"gpt2-mini", "qwen3-mini", "qwen3-moe-mini", "llama4-mini"}) {
    Config config = tiny(preset);
    config.optimizer.clip_norm = 0.0;
    config.sharding.grid = 0;
    const TrainedSession whole = run(config, 1, /*documents=*/true);
    config = variant_of(config, "fsdp");
    for (const int ranks : {2, 4}) {
      INFO(preset << " on " << ranks << " ranks");
      config.sharding.context_parallel = ranks;
      const TrainedSession cut = run(config, ranks, /*documents=*/true);
      for (std::size_t i = 0; i < whole.losses.size(); ++i) {
        CHECK(cut.losses[i] == Approx(whole.losses[i]).epsilon(1e-5));
      }
      CHECK(cut.norms[0] == Approx(whole.norms[0]).epsilon(1e-5));
      CHECK(cut.norms[1] == Approx(whole.norms[1]).epsilon(1e-3));
      CHECK((cut.weights != whole.weights));
    }
  }
}

TEST_CASE("context: micro-batches, rows of several ranks, and checkpointing have the same bits") {
  Config config = tiny("qwen3-mini");
  config.data.batch_size = 4;
  config.data.accumulation_steps = 2;
  expect_same_bits(config, {2, 4}, {"ddp", "zero1", "zero2", "fsdp_flat"});
  config.sharding.activation_checkpointing = {.first = 0, .every = 1};
  expect_same_bits(config, {4}, {"fsdp"});

  // Two batch ranks: the tree over ranks has the leaves of a row as a subtree.
  Config by_rows = tiny("gpt2-mini");
  for (const char* strategy : {"ddp", "zero3", "fsdp", "hsdp"}) {
    by_rows = variant_of(by_rows, strategy);
    by_rows.sharding.context_parallel = 1;
    const TrainedSession expected = run(by_rows, 2);
    for (const int context : {2, 4}) {
      INFO(fmt::format("{} with {} context ranks", strategy, context));
      by_rows.sharding.context_parallel = context;
      expect_equal(run(by_rows, 2 * context), expected);
    }
  }
}

TEST_CASE("context: ranks that share out tokens and channels have the same bits") {
  for (const char* preset : {"gpt2-mini", "qwen3-mini"}) {
    Config config = tiny(preset);
    config.model.heads = 4;
    if (config.model.preset == "gpt2-mini") config.model.dropout = 0.2;
    if (config.model.preset == "qwen3-mini") config.model.kv_heads = 4;
    const TrainedSession expected = run(config, 1);
    for (const auto& [context, tensor] : {std::pair(1, 2), {2, 2}, {4, 2}, {2, 4}}) {
      INFO(fmt::format("{}: context {} x tensor {}", preset, context, tensor));
      Config here = variant_of(config, "fsdp");
      here.sharding.context_parallel = context;
      here.sharding.tensor_parallel = tensor;
      expect_equal(run(here, context * tensor), expected);
    }
  }
}

TEST_CASE("context: with train.elastic rows and tokens are shared out over any ranks") {
  Config config = tiny("llama3-mini");
  config.data.batch_size = 4;
  config.train.elastic = 4;
  const TrainedSession expected = run(config, 1);
  for (const auto& [context, ranks] : {std::pair(1, 4), {2, 2}, {2, 8}, {4, 8}}) {
    INFO(context << " context ranks of " << ranks);
    Config here = variant_of(config, "fsdp");
    here.sharding.context_parallel = context;
    expect_equal(run(here, ranks), expected);
  }
}

TEST_CASE("context: 16-bit runs have the same bits") {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Config config = tiny("qwen3-moe-mini");
    config.moe.balance = Balance::bias;
    config.runtime.compute_dtype = dtype;
    expect_same_bits(config, {2, 4}, {"fsdp"});
  }
}

TEST_CASE("context: a run goes on with 2, 4 and 1 ranks and ends with the same bits", "[cpu]") {
  const test::TemporaryDirectory folder;
  Config config = test::tiny_run(folder);
  config.model.context = config.data.sequence_length = 32;
  config.train.steps = 6;
  config.train.eval_every = 2;
  config.train.checkpoint_every = 2;
  config.sharding.grid = 4;
  config.optimizer.schedule = ScheduleKind::constant;
  train(config);
  Config changing = config;
  changing.train.dir = folder / "changing";
  const auto run_until = [&](std::int64_t step, int context_ranks, const char* strategy) {
    Config run = variant_of(changing, strategy);
    run.runtime.ranks = run.sharding.context_parallel = context_ranks;
    run.train.steps = step;
    train(run);
  };
  run_until(2, 2, "fsdp");
  run_until(4, 4, "zero3");
  run_until(6, 1, "ddp");
  CHECK(test::results_of(changing.train.dir) == test::results_of(config.train.dir));
  CHECK(test::model_bytes(changing.train.dir) == test::model_bytes(config.train.dir));
}

namespace {

/// The peak of activations in a step on rank 0, which a dry run predicts.
std::int64_t activations(const Config& config, int ranks) {
  std::int64_t peak = 0;
  test::with_session(config, ranks,
                     [&](TrainingSession& session, const BatchSource& source, Communicator& world) {
                       session.step(1, source);
                       context().allocator().reset_peaks();
                       session.step(2, source);
                       if (world.rank() == 0)
                         peak = context().allocator().account()[Category::activations].peak;
                     });
  const StepMemory dry = dry_run(resolve(config), {.ranks = ranks, .threads = 1});
  CHECK(dry.account[Category::activations].peak == peak);
  return peak;
}

/// One row of 4,096 tokens.
Config long_row() {
  Config config = variant_of(tiny("llama3-mini"), "ddp");
  config.model.context = 4096;
  config.data = {.batch_size = 1, .sequence_length = 4096};
  config.sharding.grid = 0;
  return config;
}

}  // namespace

TEST_CASE("context: four ranks have a quarter of a long row's activations each", "[cpu]") {
  Config config = long_row();
  config.model.layers = 4;
  const std::int64_t whole = activations(config, 1);
  config.sharding.context_parallel = 4;
  const std::int64_t quarter = activations(config, 4);
  // A quarter of the kept tensors; the keys and values of one layer, gathered and with gradients, are whole.
  const std::int64_t keys_and_values = 4096 * 2 * 8 * 4;
  CHECK(quarter >= whole / 4);
  CHECK(quarter <= whole / 4 + 5 * keys_and_values);
}

TEST_CASE("context: head by head, a rank has the keys of two of eight heads", "[cpu]") {
  Config config = long_row();
  config.model.heads = config.model.kv_heads = 8;
  config.model.layers = 1;
  config.sharding.context_parallel = 4;
  const std::int64_t together = activations(config, 4);
  config.sharding.context_exchange = KeyExchange::heads;
  // Together, a backward pass has at least the keys and values of all heads, their gradients, and two sums of
  // pieces: four times their size. By heads it has an eighth of each, and of the next head's keys.
  const std::int64_t keys_and_values = 4096 * 2 * 64 * 4;
  CHECK(activations(config, 4) < together - 2 * keys_and_values);
}

TEST_CASE("context: plan prints the axis and the bytes of keys and values") {
  Config config = variant_of(tiny("llama3-mini"), "fsdp");
  config.sharding.grid = 0;
  config.sharding.activation_checkpointing = {.first = 1, .every = 1};
  const auto sent = [&](int context_ranks) {
    config.sharding.context_parallel = context_ranks;
    const ResolvedConfig run = resolve(config);
    return footprint_of(make_model(run)->units(), run.sharding, 4, 0).bytes_sent;
  };
  // Two rows of 32 tokens on 4 ranks, one key head and one value head of 8 channels: in two layers,
  // the second computed again, 5 gathers and 2 reductions, 3/4 or 1/2 of each part's bytes.
  const std::int64_t bytes = 32 * 2 * 8 * 4 * (5 + 2);
  CHECK(sent(4) - sent(1) == 2 * bytes * 3 / 4);
  CHECK(sent(2) - sent(1) == bytes / 2);
  config.sharding.context_parallel = 2;
  CHECK_THAT(plan(config, {.ranks = 4}), Contains("mesh        replica 1 x shard 2 x context 2"));
}

TEST_CASE("context: rows, ranks and keys that cannot be cut are refused with one line") {
  const auto refused = [](auto change, int ranks, const std::string& message) {
    Config config = variant_of(tiny("qwen3-moe-mini"), "fsdp");
    config.sharding.context_parallel = 2;
    change(config);
    CHECK_THROWS_WITH(check_ranks(resolve(config), ranks), Contains(message));
  };
  refused([](Config& c) { c.data.sequence_length = 24; }, 2,
          "data.sequence_length 24 is no multiple of 16, twice sharding.grid 8");
  refused([](Config& c) { c.data.sequence_length = 30, c.sharding.grid = 0; }, 2,
          "data.sequence_length 30 is no multiple of 4, twice sharding.context_parallel 2");
  refused([](Config&) {}, 3, "the 3 ranks are no multiple of");
  refused([](Config& c) { c.sharding.context_parallel = 3; }, 3, "expected a power of two");
  refused([](Config& c) { c.sharding.strategy = StrategyKind::single; }, 2, "choose ddp");
  refused([](Config& c) { c.moe.balance = Balance::hf; }, 2, "choose bias or lagged");
  refused([](Config& c) { c.sharding.reduce_dtype = DType::bf16; }, 2,
          "sharding.grid needs gradients sent in f32");
  refused(
      [](Config& c) {
        c.data.accumulation_steps = 2;
        c.sharding.reduce = ReduceAfter::last_micro_batch;
      },
      2, "leave out sharding.reduce");
  refused([](Config& c) { c.sharding.expert_parallel = 2; }, 4, "Set sharding.expert_parallel=1");
}

TEST_CASE("context: dropout has the same bits") {
  Config config = tiny("gpt2-mini");
  config.model.dropout = 0.2;
  expect_same_bits(config, {2, 4}, {"ddp"}, /*documents=*/true);
}

}  // namespace tessera
