// train.batch_ramp: the rows of steps, one set of bits for every number of ranks and after a resume, and mistakes.
#include <catch2/catch.hpp>

#include "sharding/checkpoint/folder.h"
#include "tests/tools/sessions.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/sharding_options.h"
#include "tools/data/batch_sizes.h"
#include "tools/train/resolve_ranks.h"
#include "tools/train/run_data.h"
#include "tools/train/trainer.h"

namespace tessera {
namespace {

using Catch::Contains;
using nlohmann::json;
using test::TemporaryDirectory;
using test::TrainedSession;

/// 12 steps: 3 of 4 rows, 4 of 8, and 5 of 16.
Config ramped(const TemporaryDirectory& folder) {
  Config config = test::tiny_run(folder);
  config.data.batch_size = 16;
  config.train.batch_ramp = {{.batches = 3, .rows = 4}, {.batches = 4, .rows = 8}};
  config.train.elastic = 4;
  return config;
}

}  // namespace

TEST_CASE("batch_ramp: batches follow one another without a gap, and end at the batch size") {
  const BatchSizes sizes(16, {{.batches = 3, .rows = 4}, {.batches = 4, .rows = 8}});
  std::int64_t row = 0;
  for (std::int64_t batch = 0; batch < 12; ++batch) {
    CAPTURE(batch);
    CHECK(sizes.rows(batch) == (batch < 3 ? 4 : batch < 7 ? 8 : 16));
    CHECK(sizes.first_row(batch) == row);
    row += sizes.rows(batch);
  }
}

TEST_CASE("batch_ramp: a step takes the next rows of the run, on any number of ranks") {
  const TemporaryDirectory folder;
  const Config config = ramped(folder);
  const ResolvedConfig run = resolve(config);
  const RunData data(run);
  const BatchSource source = batches_of(data.train, 1, batch_sizes(config));
  const BatchSource plain = batches_of(data.train, 0, 4);  // batches of 4 rows
  {
    const test::Rank rank;
    CHECK(source.load(4, 0, 4).inputs.to_vector<std::int32_t>() ==
          plain.load(3, 0, 4).inputs.to_vector<std::int32_t>());
    CHECK(source.load(5, 4, 4).inputs.to_vector<std::int32_t>() ==
          plain.load(6, 0, 4).inputs.to_vector<std::int32_t>());
  }
  const test::Steps steps = {.count = 9, .source = source};
  const TrainedSession expected = test::train_session(config, 1, steps);
  for (const char* strategy : {"ddp", "zero2", "fsdp"}) {
    for (const int ranks : {2, 4}) {
      CAPTURE(strategy, ranks);
      CHECK((test::train_session(variant_of(config, strategy), ranks, steps) == expected));
    }
  }
}

TEST_CASE("batch_ramp: a run reports its tokens, and continues within the ramp bit for bit") {
  const TemporaryDirectory folder;
  Config config = ramped(folder);
  config.train.checkpoint_every = 5;
  config.train.keep_last = 10;
  train(config);
  const std::vector<json> whole = test::metrics_of(config.train.dir);
  REQUIRE(whole.size() == 12);
  for (std::int64_t step = 1; step <= 12; ++step) {
    const std::int64_t rows = step <= 3   ? 4 * step
                              : step <= 7 ? 12 + 8 * (step - 3)
                                          : 44 + 16 * (step - 7);
    CHECK(whole[static_cast<std::size_t>(step - 1)]["tokens"] == rows * 24);
  }
  config.train.resume = checkpoint_path(config.train.dir, 5).string();
  config.train.dir = folder / "continued";
  config.runtime.ranks = 2;
  config.sharding.strategy = StrategyKind::fsdp;
  train(config);
  const std::vector<json> rest = test::metrics_of(config.train.dir);
  REQUIRE(rest.size() == 7);
  for (std::size_t i = 0; i < rest.size(); ++i) {
    CHECK(rest[i]["loss"] == whole[5 + i]["loss"]);
    CHECK(rest[i]["gradient_norm"] == whole[5 + i]["gradient_norm"]);
  }
}

TEST_CASE("batch_ramp: mistakes are named") {
  const auto error_of = [](const std::vector<BatchStage>& ramp, std::int64_t elastic) {
    Config config;
    config.model = test::tiny_model("gpt2-mini", 8);
    config.data = {.batch_size = 16, .sequence_length = 8};
    config.train.batch_ramp = ramp;
    config.train.elastic = elastic;
    return test::error_of([&] { check_ranks(resolve(config), 1); });
  };
  CHECK(error_of({{3, 4}}, 4) == "no error");
  CHECK_THAT(error_of({{3, 6}}, 4),
             Contains("train.batch_ramp") && Contains("6 is not a multiple"));
  CHECK_THAT(error_of({{3, 32}}, 4), Contains("32 is larger than data.batch_size 16"));
}

}  // namespace tessera
