// kernels.cublaslt=measured: checkpoints keep the algorithms, and a run that continues has the same bits.
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>

#include "kernels/matmul/measured.h"
#include "runtime/emulation/toolkit/emulated_device.h"
#include "sharding/checkpoint/reader.h"
#include "tests/support/rank.h"
#include "tests/tools/tiny_run.h"
#include "tools/train/algorithms.h"
#include "tools/train/resume.h"
#include "tools/train/trainer.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using test::TemporaryDirectory;

/// Trains while one of cuBLASLt's algorithms is slow: that which adds whole sums, or halves.
void train_with_slow(bool whole, const Config& config) {
  emulation::DeviceOptions options = emulation::device_options();
  options.product_delays = {std::chrono::hours(1), std::chrono::hours(1)};  // four of each decide
  (whole ? options.product_delays.whole : options.product_delays.in_halves) *= 2;
  const emulation::DeviceOptionsGuard guard(options);
  train(config);
}

Config measured_run(const TemporaryDirectory& folder, int ranks) {
  Config config = test::tiny_run(folder);
  config.model.layers = 1;
  config.model.context = config.data.sequence_length = 16;
  config.data.batch_size = 2;
  config.data.val.clear();
  config.train.steps = 4;
  config.train.checkpoint_every = 2;
  config.train.keep_last = 9;
  config.runtime.device = Device{DeviceType::cuda, 0};
  config.runtime.ranks = ranks;
  config.sharding.strategy = ranks == 1 ? StrategyKind::single : StrategyKind::zero3;
  config.runtime.threads = 1;
  config.kernels.cublaslt = AlgorithmChoice::measured;
  return config;
}

}  // namespace

TEST_CASE("a run that continues multiplies by the algorithms that it measured before") {
  const TemporaryDirectory folder;
  const int ranks = GENERATE(1, 2);
  CAPTURE(ranks);
  const Config config = measured_run(folder, ranks);
  train_with_slow(/*whole=*/false, config);
  const std::string model = test::model_bytes(config.train.dir);
  const std::vector<std::string> results = test::results_of(config.train.dir);

  fs::remove_all(config.train.dir / "model");
  fs::remove_all(checkpoint_path(config.train.dir, 4));
  Config without = config;
  without.train.dir = folder / "without";
  fs::copy(config.train.dir, without.train.dir, fs::copy_options::recursive);

  train_with_slow(/*whole=*/true, config);
  CHECK(test::results_of(config.train.dir) == results);
  CHECK(test::model_bytes(config.train.dir) == model);
  CheckpointReader first(checkpoint_path(config.train.dir, 2));
  CheckpointReader last(checkpoint_path(config.train.dir, 4));
  CHECK(last.text(kAlgorithmsFile) == first.text(kAlgorithmsFile));

  without.kernels.cublaslt = AlgorithmChoice::suggested;
  train_with_slow(/*whole=*/true, without);
  CHECK(test::model_bytes(without.train.dir) != model);
}

TEST_CASE("a rank takes its own algorithms of a checkpoint, or those of the rank in its place") {
  const test::Rank here;
  const std::string made_by = measured_algorithms().made_by;
  const auto text = fmt::format(R"({{"ranks": [{{"made_by": "{0}", "choices": {{"x": "1"}}}},
                                             {{"made_by": "{0}", "choices": {{"x": "2"}}}}]}})",
                                made_by);
  for (int rank = 0; rank < 5; ++rank) {
    CHECK(use_algorithms(text, rank) == "");
    CHECK(measured_algorithms().choices.at("x") == (rank % 2 == 0 ? "1" : "2"));
  }
  const std::string other = R"({"ranks": [{"made_by": "cuBLASLt 1 on a GPU", "choices": {}}]})";
  CHECK(use_algorithms(other, 0) ==
        "the algorithms of matrix products were measured by cuBLASLt 1 on a GPU, and this is " +
            made_by);
  CHECK(measured_algorithms().choices.size() == 1);
  CHECK_THROWS_WITH(use_algorithms(R"({"ranks": []})", 0), "it lists the algorithms of no rank");
}

}  // namespace tessera
