// Runs on mixtures and with several validation sources.
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/support/error_of.h"
#include "tests/support/rank.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/parse.h"
#include "tools/train/run_data.h"
#include "tools/train/tensorboard.h"
#include "tools/train/trainer.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::model_bytes;
using test::results_of;
using test::TemporaryDirectory;
namespace fs = std::filesystem;

/// Token files of capitals, digits and small letters.
void write_sources(const TemporaryDirectory& folder) {
  for (const auto& [name, first, count] :
       {std::tuple("capitals", 'A', 26), {"digits", '0', 10}, {"small", 'a', 26}}) {
    std::string text;
    for (int i = 0; i < 3000 + count; ++i)
      text.push_back(static_cast<char>(first + i * (i / count + 1) % count));
    write_file_atomically(folder / (std::string(name) + ".txt"), text);
    prepare({.inputs = {folder / (std::string(name) + ".txt")},
             .tokenizer = "bytes",
             .out = folder / name,
             .val_fraction = 0.1});
  }
}

/// A run of 12 steps of 4 rows on a curriculum: digits come in from step 5 on.
Config mixed_run(const TemporaryDirectory& folder) {
  Config config = test::tiny_run(folder);
  write_sources(folder);
  const auto path = [&](const char* name) { return folder / (std::string(name) + "/train.bin"); };
  config.data.train.sources = {{.path = path("capitals"), .weight = 0.5},
                               {.path = path("small"), .weight = 0.25, .until_step = 4},
                               {.path = path("small"), .weight = 0.125, .from_step = 5},
                               {.path = path("digits"), .weight = 0.875, .from_step = 5}};
  config.data.val = folder / "capitals/val.bin";
  return config;
}

/// The rows of capitals, digits and small letters in the first steps of a run.
std::vector<std::int64_t> rows_by_source(const TokenLoader& loader, std::int64_t steps,
                                         std::int64_t rows) {
  std::vector<std::int64_t> found(3, 0);
  for (std::int64_t step = 0; step < steps; ++step) {
    const auto inputs = loader.load(step, 0, rows, rows).inputs.to_vector<std::int32_t>();
    const std::size_t length = inputs.size() / static_cast<std::size_t>(rows);
    for (std::size_t at = 0; at < inputs.size(); at += length) {
      ++found[inputs[at] >= 'a' ? 2 : inputs[at] >= 'A' ? 0 : 1];
    }
  }
  return found;
}

}  // namespace

TEST_CASE("a mixture's rows come from its sources in exact shares, step by step", "[cpu]") {
  const TemporaryDirectory folder;
  const Config config = mixed_run(folder);
  const test::Rank rank;
  const RunData data(resolve(config));
  using Rows = std::vector<std::int64_t>;
  CHECK(rows_by_source(data.train, 1, 4) == Rows{3, 0, 1});
  CHECK(rows_by_source(data.train, 4, 4) == Rows{11, 0, 5});            // 10.67 and 5.33
  CHECK(rows_by_source(data.train, 10, 4) == Rows{11 + 8, 14, 5 + 2});  // 8, 14 and 2 of 24
  CHECK(data.train.rows_of_sources(40) == Rows{19, 7, 14});             // in the order of the list
  CHECK_THAT(describe_data(resolve(config), data),
             Contains("3 sources: 12 steps of 96 tokens") && Contains("digits/train.bin: 0."));
}

TEST_CASE("a list of one source is the run of its path, in all bits", "[cpu]") {
  const TemporaryDirectory folder;
  Config config = mixed_run(folder);
  config.data.train = folder / "capitals/train.bin";
  train(config);
  Config listed = config;
  listed.train.dir = folder / "listed";
  listed.data.train.sources[0].weight = 3;
  train(listed);
  CHECK(results_of(listed.train.dir) == results_of(config.train.dir));
  CHECK(model_bytes(listed.train.dir) == model_bytes(config.train.dir));
}

TEST_CASE("a mixture has the same bits on other ranks, and after a resume", "[cpu]") {
  const TemporaryDirectory folder;
  Config config = mixed_run(folder);
  config.train.elastic = 4;
  config.optimizer.schedule = ScheduleKind::constant;
  train(config);
  Config ranks = config;
  ranks.train.dir = folder / "ranks";
  ranks.runtime.ranks = 2;
  ranks.sharding.strategy = StrategyKind::fsdp;
  ranks.train.checkpoint_every = 3;
  ranks.train.steps = 3;
  train(ranks);
  ranks.train.steps = 12;
  ranks.runtime.ranks = 4;
  train(ranks);
  CHECK(model_bytes(ranks.train.dir) == model_bytes(config.train.dir));
  // The written configuration has the whole mixture, and another is refused.
  Config changed = load_config(ranks.train.dir / "config.yaml", {});
  CHECK(changed.data.train == config.data.train);
  changed.data.train.sources[0].weight = 0.75;
  CHECK_THAT(test::error_of([&] { train(changed); }), Contains("data.train is '[{path: "));
}

TEST_CASE(
    "each validation source has its loss and perplexity, and val_loss is their mean over tokens",
    "[cpu]") {
  const TemporaryDirectory folder;
  Config config = mixed_run(folder);
  config.train.eval_batches = 0;
  std::map<std::string, double> alone;
  for (const char* name : {"capitals", "digits"}) {
    config.train.dir = folder / ("alone_" + std::string(name));
    config.data.val = folder / (std::string(name) + "/val.bin");
    train(config);
    alone[name] = test::metrics_of(config.train.dir).back()["val_loss"].get<double>();
  }
  config.data.val.clear();
  config.data.validation = {{"capitals", folder / "capitals/val.bin"},
                            {"digits", folder / "digits/val.bin"}};
  config.train.dir = folder / "both";
  train(config);
  const nlohmann::json last = test::metrics_of(config.train.dir).back();
  CHECK(last["val_losses"] == nlohmann::json(alone));
  const auto scalars = tensorboard_scalars(last);
  const std::map<std::string, double> curves(scalars.begin(), scalars.end());
  CHECK(curves.at("loss/val/digits") == alone["digits"]);
  CHECK(curves.at("perplexity/capitals") == last["val_perplexities"]["capitals"].get<double>());
  CHECK(last["val_perplexities"]["digits"].get<double>() == Approx(std::exp(alone["digits"])));
  const auto rows = [&](const char* name) {
    return static_cast<double>(
        (fs::file_size(folder / (std::string(name) + "/val.bin")) - 1024) / 2 - 1);
  };
  const std::int64_t length = config.data.sequence_length;
  const double a = std::floor(rows("capitals") / static_cast<double>(length)),
               b = std::floor(rows("digits") / static_cast<double>(length));
  CHECK(last["val_loss"].get<double>() ==
        Approx((a * alone["capitals"] + b * alone["digits"]) / (a + b)).epsilon(1e-6));
  CHECK_THAT(read_text_file(config.train.dir / "log.txt"),
             Contains("val capitals ") && Contains("(perplexity "));
  config.data.val = folder / "digits/val.bin";
  CHECK_THAT(test::error_of([&] { train(config); }), Contains("data.validation is set, too"));
}

TEST_CASE("sources of two vocabularies are refused", "[cpu]") {
  const TemporaryDirectory folder;
  Config config = mixed_run(folder);
  config.data.train.sources.push_back({.path = folder / "data/train.bin"});  // by characters
  CHECK_THAT(test::error_of([&] { train(config); }),
             Contains("data.train: ") && Contains("prepare all sources with one tokenizer"));
}

}  // namespace tessera
