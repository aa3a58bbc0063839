// Whole runs on rows of documents.
#include <catch2/catch.hpp>

#include "sharding/comm/threads/threads.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/sharding_options.h"
#include "tools/train/resolve.h"
#include "tools/train/run_data.h"
#include "tools/train/session.h"
#include "tools/train/trainer.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using test::metrics_of;
using test::model_bytes;
using test::TemporaryDirectory;

/// A document starts at a space: it has a number of the text.
Config documents_run(const TemporaryDirectory& folder, RowKind rows) {
  Config config = test::tiny_run(folder);
  config.data.rows = rows;
  config.data.document_token = "0";
  config.train.steps = 4;
  config.train.eval_every = 0;
  config.runtime.threads = 1;
  config.train.dir = folder / "run";
  return config;
}

std::vector<double> losses_of(const fs::path& run) {
  std::vector<double> losses;
  for (const auto& line : metrics_of(run)) losses.push_back(line.at("loss"));
  return losses;
}

}  // namespace

TEST_CASE("document rows: two and four ranks have the losses of one") {
  for (const RowKind rows : {RowKind::packed, RowKind::padded}) {
    CAPTURE(enum_name(rows));
    const TemporaryDirectory folder;
    Config config = documents_run(folder, rows);
    config.data.batch_size = 8;
    std::vector<double> expected;
    for (const int ranks : {1, 2, 4}) {
      Config ranked = ranks == 1 ? config : variant_of(config, ranks == 2 ? "ddp" : "fsdp");
      ranked.runtime.ranks = ranks;
      ranked.data.accumulation_steps = 4 / ranks;  // the same micro-batches in every run
      ranked.train.dir = folder / ("run" + std::to_string(ranks));
      train(ranked);
      const std::vector<double> losses = losses_of(ranked.train.dir);
      if (expected.empty()) expected = losses;
      REQUIRE(losses.size() == 4);
      for (std::size_t i = 0; i < 4; ++i) CHECK(losses[i] == Approx(expected[i]).epsilon(1e-5));
    }
  }
}

TEST_CASE("document rows: packed documents have the loss of each document alone") {
  const TemporaryDirectory folder;
  std::vector<float> losses;
  for (const RowKind rows : {RowKind::packed, RowKind::padded}) {
    Config config = documents_run(folder, rows);
    config.train.seed = 3;
    const ResolvedConfig run = resolve(config);
    const RunData data(run);
    run_ranks({.ranks = 1, .threads = 1}, [&](Communicator& world) {
      TrainingSession session(run, world);
      const std::int64_t samples = data.validation[0].loader.samples();
      losses.push_back(
          session.evaluate(samples, batches_of(data.validation[0].loader, 0, samples)));
    });
  }
  CHECK(losses[0] == Approx(losses[1]).epsilon(1e-6));
}

}  // namespace tessera
