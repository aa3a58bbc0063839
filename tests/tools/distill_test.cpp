// Training with a teacher's likeliest tokens: the rows, and runs by every strategy.
#include <catch2/catch.hpp>

#include "kernels/cross_entropy/op.h"
#include "tests/tools/sessions.h"
#include "tests/tools/teachers.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/sharding_options.h"
#include "tools/train/run_data.h"
#include "tools/train/trainer.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using test::answers_of_token;
using test::error_of;
using test::metrics_of;
using test::TemporaryDirectory;
using test::TrainedSession;
using test::write_teacher;

/// A run with a teacher file that gives two tokens for each.
Config distilled_run(const TemporaryDirectory& folder) {
  Config config = test::tiny_run(folder);
  config.train.objective = Objective::distill;
  config.distill = {.top_k = 2, .weight = 0.5};
  write_teacher(folder / "data/train.bin", 2, 11, answers_of_token);
  return config;
}

std::vector<std::int32_t> classes_at(const Batch& batch, std::int64_t row) {
  return batch.soft.classes.slice(row, row + 1).to_vector<std::int32_t>();
}

}  // namespace

TEST_CASE("distill: each token of a window has the next token and the teacher's likeliest") {
  const test::Rank rank;
  const TemporaryDirectory folder;
  write_token_file(folder / "train.bin", std::vector<TokenId>{1, 2, 3, 4, 5, 6, 7});
  write_teacher(folder / "train.bin", 3, 20, [](std::int64_t i) -> test::Answers {
    const auto id = static_cast<TokenId>(10 + i);
    return {{id, -0.5f}, {id + 1, -1.0f}, {id + 2, -1.5f}};
  });
  RowSource source(TokenFile(folder / "train.bin"), 3, SampleOrder::sequential, 1, std::nullopt,
                   RowKind::windows);
  source.set_teacher({.top_k = 2, .weight = 0.25}, 20);
  const Batch batch = TokenLoader(source).load(0, 0, 2, 2);
  REQUIRE(batch.soft.classes.shape() == Shape{2, 3, 3});
  CHECK(classes_at(batch, 0) == std::vector<std::int32_t>{2, 10, 11, 3, 11, 12, 4, 12, 13});
  CHECK(classes_at(batch, 1) == std::vector<std::int32_t>{5, 13, 14, 6, 14, 15, 7, 15, 16});
  const auto weights = batch.soft.weights.to_vector<float>();
  const double likelier = 1.0 / (1.0 + std::exp(-0.5));
  CHECK(weights[0] == 0.75f);
  CHECK(weights[1] == Approx(0.25 * likelier).epsilon(1e-6));
  CHECK(weights[2] == Approx(0.25 * (1.0 - likelier)).epsilon(1e-6));
  CHECK(batch.loss_targets().each() == 3);
}

TEST_CASE("distill: places without a target, and the ends of rows, have no soft targets") {
  const test::Rank rank;
  const TemporaryDirectory folder;
  write_token_file(folder / "train.bin", std::vector<TokenId>{1, 2, 3, 9, 5, 6});
  write_mark_file(folder / "train.marks", 6, [](const TakeMarks& take) {
    take(std::vector<TokenMarks>{kBegins, 0, kTrained, kTrained, kBegins, kTrained});
  });
  write_teacher(folder / "train.bin", 1, 20, [](std::int64_t i) -> test::Answers {
    return {{static_cast<TokenId>(10 + i), -0.5f}};
  });
  RowSource source(TokenCorpus::open(folder / "train.bin", 20), 8, SampleOrder::sequential, 1,
                   std::nullopt, RowKind::packed);
  source.set_teacher({.top_k = 1, .weight = 0.5}, 20);
  const Batch batch = TokenLoader(source).load(0, 0, 1, 1);
  constexpr int kNone = kIgnoreIndex;
  CHECK(batch.targets.to_vector<std::int32_t>() ==
        std::vector<std::int32_t>{kNone, 3, 9, kNone, 6, kNone, kNone, kNone});
  CHECK(classes_at(batch, 0) == std::vector<std::int32_t>{kNone, kNone, 3, 11, 9, 12, kNone, kNone,
                                                          6, 14, kNone, kNone, kNone, kNone, kNone,
                                                          kNone});
}

TEST_CASE("distill: teacher files that do not suit the run are refused in one line") {
  const TemporaryDirectory folder;
  Config config = distilled_run(folder);
  const fs::path tokens = folder / "data/train.bin";
  config.distill.top_k = 3;
  CHECK_THAT(error_of([&] { train(config); }),
             Contains("has 2 tokens of the teacher for each token, and distill.top_k is 3"));
  config.distill.top_k = 2;
  write_teacher(tokens, 2, 4000, answers_of_token);
  CHECK_THAT(error_of([&] { train(config); }),
             Contains("the teacher's vocabulary has 4000 tokens, and the model's 11"));
  fs::copy_file(folder / "data/val.bin", folder / "other.bin");
  write_teacher(folder / "other.bin", 2, 11, answers_of_token);
  fs::copy_file(folder / "other.teacher", folder / "data/train.teacher",
                fs::copy_options::overwrite_existing);
  CHECK_THAT(error_of([&] { train(config); }), Contains("other tokens"));
  fs::remove(folder / "data/train.teacher");
  CHECK_THAT(error_of([&] { train(config); }),
             Contains("train.teacher is missing; write it: tessera score --model TEACHER --data"));
  config.data.train = fs::path("synthetic:zipf");
  CHECK_THAT(error_of([&] { train(config); }), Contains("is in no file"));
  CHECK_FALSE(fs::exists(config.train.dir / "model"));
}

TEST_CASE("distill: a teacher without a share leaves the bits of next_token") {
  const TemporaryDirectory folder;
  Config config = distilled_run(folder);
  config.distill.weight = 0.0;
  train(config);
  Config plain = config;
  plain.train.objective = Objective::next_token;
  plain.train.dir = folder / "plain";
  train(plain);
  CHECK(test::results_of(config.train.dir) == test::results_of(plain.train.dir));
  CHECK(test::model_bytes(config.train.dir) == test::model_bytes(plain.train.dir));
}

TEST_CASE("distill: a student of one distribution ends at its entropy, and measures next tokens") {
  const TemporaryDirectory folder;
  Config config = distilled_run(folder);
  write_teacher(folder / "data/train.bin", 2, 11, [](std::int64_t) { return answers_of_token(3); });
  config.distill.weight = 1.0;
  config.optimizer.learning_rate = 3e-2;
  config.optimizer.warmup_steps = 2;
  config.train.steps = 60;
  train(config);
  const double entropy = 0.75 * std::log(4.0 / 3.0) + 0.25 * std::log(4.0);
  const auto lines = metrics_of(config.train.dir);
  CHECK(lines.back().at("loss").get<double>() == Approx(entropy).margin(0.01));
  CHECK(lines.back().at("loss").get<double>() > entropy - 1e-3);
  CHECK(lines.back().at("val_loss").get<double>() > 2.0);
}

TEST_CASE("distill: a run that was resumed has the bits of one that was not") {
  const TemporaryDirectory folder;
  Config config = distilled_run(folder);
  config.optimizer.schedule = ScheduleKind::constant;
  config.train.checkpoint_every = 5;
  train(config);
  Config resumed = config;
  resumed.train.dir = folder / "resumed";
  resumed.train.steps = 5;
  train(resumed);
  resumed.train.steps = config.train.steps;
  train(resumed);
  CHECK(test::model_bytes(resumed.train.dir) == test::model_bytes(config.train.dir));
}

TEST_CASE("distill: strategies, pipelines, cuts and elastic ranks have the bits of one rank") {
  Config config;
  config.model = test::tiny_model("llama3-mini");
  config.model.vocab_size = 37;
  config.data = {.batch_size = 4, .sequence_length = 24};
  config.train.objective = Objective::distill;
  config.train.elastic = 4;
  config.distill = {.top_k = 6, .weight = 0.5};
  config.sharding.grid = 2;
  const BatchSource rows =
      test::two_documents(24, 37, [](std::int64_t row) { return 9 + row % 5; });
  const BatchSource source = test::with_teacher(rows, config.distill, 37);
  const TrainedSession expected = test::train_session(config, 1, {.source = source});
  CHECK(test::train_session(config, 1, {.source = rows}).losses != expected.losses);
  const auto expect_same = [&](const Config& variant, int ranks) {
    test::Findings findings;
    CHECK(test::train_session(variant, ranks, {.source = source, .findings = &findings}) ==
          expected);
    CHECK(findings.wrong().empty());
  };
  for (const char* strategy : {"ddp", "zero3", "fsdp", "fsdp_flat"}) {
    CAPTURE(strategy);
    expect_same(variant_of(config, strategy), 2);
  }
  Config cut = variant_of(config, "fsdp");
  cut.sharding.pipeline_parallel = 2;
  expect_same(cut, 4);
  cut.sharding.pipeline_parallel = 1;
  cut.sharding.context_parallel = 2;
  expect_same(cut, 4);
  cut.sharding.context_parallel = 1;
  cut.sharding.tensor_parallel = 2;
  expect_same(cut, 4);
}

}  // namespace tessera
