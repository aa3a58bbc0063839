// Context parallelism: with sharding.grid the same bits on 1, 2, 4 and 8 ranks, and bytes as predicted.
//
// Expected bits are those of one rank, which has every leaf of a row itself.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "runtime/random.h"
#include "sharding/comm/threads/threads.h"
#include "tests/support/device.h"
#include "tests/tools/sessions.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/sharding_options.h"
#include "tools/train/session.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::Findings;
using test::TrainedSession;

constexpr std::int64_t kVocabulary = 37;
constexpr std::int32_t kIgnored = -100;
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

/// Rows of two documents, of which unequal numbers of targets are valid.
Batch packed_tokens(std::int64_t step, std::int64_t first_row, std::int64_t rows) {
  std::vector<std::int32_t> inputs, targets, starts;
  for (std::int64_t row = first_row; row < first_row + rows; ++row) {
    const RandomStream random(3, "packed", static_cast<std::uint64_t>(step),
                              static_cast<std::uint64_t>(row));
    const std::int64_t cut = 5 + 14 * (row % 2);
    for (std::int64_t t = 0; t < kLength; ++t) {
      const auto at = static_cast<std::uint64_t>(t);
      const auto next = static_cast<std::int32_t>(random.below(2 * at + 1, kVocabulary));
      inputs.push_back(static_cast<std::int32_t>(random.below(2 * at, kVocabulary)));
      targets.push_back(t + 1 == cut || row % 5 == t % 4 ? kIgnored : next);
      starts.push_back(static_cast<std::int32_t>(t < cut ? 0 : cut));
    }
  }
  const Shape shape = {rows, kLength};
  const Tensor document_starts = Tensor::empty_on_host(shape, DType::i32);
  std::copy(starts.begin(), starts.end(), document_starts.data<std::int32_t>());
  return {Tensor::from(inputs, shape), Tensor::from(targets, shape), document_starts};
}

/// Two steps, and the loss of an evaluation behind those of the steps.
TrainedSession run(const Config& config, int ranks, bool documents = false) {
  float evaluation = 0.0f;
  std::optional<BatchSource> source;
  if (documents) source.emplace(packed_tokens);
  const auto after = [&](TrainingSession& session, Communicator& world, int step) {
    if (step == 1) return;
    const float loss = session.evaluate(
        config.data.batch_size,
        source.value_or(random_tokens(config.data, config.model.vocab_size)));
    if (world.rank() == 0) evaluation = loss;
  };
  Findings findings;
  TrainedSession trained = test::train_session(config, ranks,
                                               {.device = test::device(),
                                                .source = source,
                                                .findings = &findings,
                                                .after = after});
  CHECK(findings.wrong() == std::vector<std::string>{});
  trained.losses.push_back(evaluation);
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

TEST_CASE("context: gpt2 has the same bits on 1, 2, 4 and 8 ranks") {
  expect_same_bits(tiny("gpt2-mini"), {1, 2, 4, 8}, {"ddp", "fsdp"});
}

TEST_CASE("context: llama has the same bits on 1, 2, 4 and 8 ranks") {
  expect_same_bits(tiny("llama3-mini"), {1, 2, 4}, {"ddp", "zero3"});
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

TEST_CASE("context: dropout has the same bits") {
  Config config = tiny("gpt2-mini");
  config.model.dropout = 0.2;
  expect_same_bits(config, {2, 4}, {"ddp"}, /*documents=*/true);
}

}  // namespace tessera
