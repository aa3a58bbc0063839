// Training on pairs of answers: their data, their reference, and runs by every strategy.
#include <catch2/catch.hpp>

#include "kernels/cross_entropy/op.h"
#include "tests/tools/sessions.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/sharding_options.h"
#include "tools/train/reference.h"
#include "tools/train/run_data.h"
#include "tools/train/trainer.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using test::error_of;
using test::metrics_of;
using test::TemporaryDirectory;
using test::TrainedSession;

/// Questions with digits in order as their right answers.
std::string pairs_text(int pairs) {
  std::string text;
  for (int i = 0; i < pairs; ++i) {
    const int n = i % 7;
    text += fmt::format(R"({{"prompt": "{}{}", "chosen": "{}", "rejected": "{}{}"}})", n, n + 1,
                        n + 2, n, n % 3 == 0 ? "" : "9");
    text += '\n';
  }
  return text;
}

void prepare_pairs(const TemporaryDirectory& folder, const std::string& text) {
  write_file_atomically(folder / "pairs.jsonl", text);
  prepare({.inputs = {folder / "pairs.jsonl"},
           .tokenizer = "bytes",
           .out = folder / "data",
           .val_fraction = 0.25,
           .answers_only = true});
}

/// Four pairs a row at most, on fresh data.
Config pairs_run(const TemporaryDirectory& folder) {
  prepare_pairs(folder, pairs_text(48));
  Config config;
  config.model = {.preset = "gpt2-mini", .layers = 2, .heads = 2, .width = 16, .context = 32};
  config.data = {.train = folder / "data/train.bin",
                 .val = folder / "data/val.bin",
                 .batch_size = 4,
                 .sequence_length = 32,
                 .rows = RowKind::packed};
  config.optimizer.learning_rate = 1e-2;
  config.train.objective = Objective::dpo;
  config.train.steps = 8;
  config.train.dir = folder / "run";
  config.train.log_every = 1;
  config.train.eval_every = 4;
  config.train.progress = ProgressMode::lines;
  config.runtime.device = Device{};
  config.runtime.threads = 1;
  return config;
}

std::vector<std::int32_t> row_of(const Tensor& tensor, std::int64_t row) {
  return tensor.slice(row, row + 1).to_vector<std::int32_t>();
}

}  // namespace

TEST_CASE(
    "pairs of answers: a row has the chosen and the rejected text, and trains their answers") {
  const test::Rank rank;
  const TemporaryDirectory folder;
  prepare_pairs(folder, R"({"prompt": "ab", "chosen": "XY", "rejected": "Z"})"
                        "\n"
                        R"({"prompt": "", "chosen": "cd", "rejected": "efg"})"
                        "\n");
  RowSource source(TokenCorpus::open(folder / "data/train.bin", 257), 16, SampleOrder::sequential,
                   1, std::nullopt, RowKind::packed);
  REQUIRE(source.has_pairs());
  CHECK(source.document_rows().pairs() == 2);
  CHECK(source.loss_terms(0) == 2);
  source.set_reference({-1.0f, -2.0f, -3.0f, -4.0f});
  const Batch batch = TokenLoader(source).load(0, 0, 1, 1);
  const auto inputs = row_of(batch.inputs, 0), targets = row_of(batch.targets, 0),
             starts = row_of(batch.document_starts, 0);
  CHECK(inputs == std::vector<std::int32_t>{'a', 'b', 'X', 'Y', 'a', 'b', 'Z', 'c', 'd', 'e', 'f',
                                            0, 0, 0, 0, 0});
  constexpr int kNone = kIgnoreIndex;
  CHECK(targets == std::vector<std::int32_t>{kNone, 'X', 'Y', kNone, kNone, 'Z', kNone, 'd', kNone,
                                             'f', 'g', kNone, kNone, kNone, kNone, kNone});
  CHECK(starts == std::vector<std::int32_t>{0, 0, 0, 0, 4, 4, 4, 7, 7, 9, 9, 11, 11, 11, 11, 11});
  const auto reference = batch.reference.to_vector<float>();
  CHECK(reference[0] == -1.0f);
  CHECK(reference[4] == -2.0f);
  CHECK(reference[7] == -3.0f);
  CHECK(reference[9] == -4.0f);
}

TEST_CASE("pairs of answers: a pair longer than a row is left out, and none is cut") {
  const test::Rank rank;
  const TemporaryDirectory folder;
  prepare_pairs(folder, R"({"prompt": "abcdefgh", "chosen": "XYZ", "rejected": "Z"})"
                        "\n"
                        R"({"prompt": "ab", "chosen": "X", "rejected": "Z"})"
                        "\n");
  const RowSource source(TokenCorpus::open(folder / "data/train.bin", 257), 8,
                         SampleOrder::sequential, 1, std::nullopt, RowKind::padded);
  CHECK(source.samples() == 1);
  CHECK(source.document_rows().pairs() == 1);
  CHECK(source.document_rows().long_pairs() == 1);
}

TEST_CASE("pairs of answers: mixed samples, and data of another objective, are refused") {
  const TemporaryDirectory folder;
  CHECK_THAT(error_of([&] {
               prepare_pairs(folder, pairs_text(2) + R"({"prompt": "a", "completion": "b"})");
             }),
             Contains("cannot be mixed"));
  Config config = pairs_run(folder);
  CHECK_THAT(error_of([&] { train(config); }), Contains("run tessera reference"));
  config.train.objective = Objective::next_token;
  CHECK_THAT(error_of([&] { train(config); }), Contains("set it to dpo, ipo or simpo"));
  config.train.objective = Objective::dpo;
  config.data.rows = RowKind::windows;
  CHECK_THAT(error_of([&] { train(config); }), Contains("set data.rows=packed"));
}

TEST_CASE("dpo: the first loss is log 2 with margins of exactly 0, and training raises them") {
  const TemporaryDirectory folder;
  const Config config = pairs_run(folder);
  write_references(config);
  train(config);
  const auto lines = metrics_of(folder / "run");
  REQUIRE(lines.size() == 8);
  CHECK(lines[0].at("loss").get<double>() == Approx(std::log(2.0)).epsilon(1e-6));
  CHECK(lines[0].at("margin").get<double>() == 0.0);
  CHECK(lines[0].at("accuracy").get<double>() == 0.0);
  CHECK(lines[7].at("margin").get<double>() > 0.1);
  CHECK(lines[7].at("val_accuracy").get<double>() > 0.8);
  CHECK(lines[7].at("val_margin").get<double>() > 0.1);

  Config other = config;
  other.train.seed = 2;
  other.train.dir = folder / "other";
  CHECK_THAT(error_of([&] { train(other); }), Contains("is of model"));
  prepare_pairs(folder, pairs_text(40));
  CHECK_THAT(error_of([&] { train(config); }), Contains("is of pairs"));
}

TEST_CASE("dpo: a run that was resumed has the bits of one that was not") {
  const TemporaryDirectory folder;
  Config config = pairs_run(folder);
  config.train.checkpoint_every = 4;
  write_references(config);
  train(config);
  Config first = config;
  first.train.dir = folder / "resumed";
  first.train.steps = 4;
  first.optimizer.schedule = ScheduleKind::constant;
  Config whole = config;
  whole.optimizer.schedule = ScheduleKind::constant;
  whole.train.dir = folder / "whole";
  train(whole);
  train(first);
  first.train.steps = 8;
  train(first);
  CHECK(test::model_bytes(first.train.dir) == test::model_bytes(whole.train.dir));
}

TEST_CASE("dpo, ipo and simpo: strategies, pipelines and elastic ranks have the bits of one rank") {
  const BatchSource source =
      test::two_answers(test::two_documents(24, 37, [](std::int64_t row) { return 9 + row % 5; }));
  for (const Objective objective : {Objective::dpo, Objective::ipo, Objective::simpo}) {
    CAPTURE(enum_name(objective));
    Config config;
    config.model = test::tiny_model("llama3-mini");
    config.model.vocab_size = 37;
    config.data = {.batch_size = 4, .sequence_length = 24, .rows = RowKind::packed};
    config.train.objective = objective;
    config.train.elastic = 4;
    const TrainedSession expected =
        test::train_session(config, 1, {.source = source, .evaluated_rows = 3});
    for (const char* strategy : {"ddp", "zero3", "fsdp", "fsdp_flat"}) {
      CAPTURE(strategy);
      test::Findings findings;
      CHECK(test::train_session(variant_of(config, strategy), 2,
                                {.source = source, .findings = &findings, .evaluated_rows = 3}) ==
            expected);
      CHECK(findings.wrong().empty());
    }
    Config pipeline = variant_of(config, "fsdp");
    pipeline.sharding.pipeline_parallel = 2;
    CHECK(test::train_session(pipeline, 4, {.source = source, .evaluated_rows = 3}) == expected);
  }
}

}  // namespace tessera
