// The rows of bench_strategies: strategies, settings, configurations by name.
#include "tools/bench/compared.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/check.h"
#include "runtime/file.h"
#include "runtime/threads.h"
#include "sharding/comm/threads/threads.h"
#include "tests/support/temporary_directory.h"
#include "tools/bench/compare.h"
#include "tools/data/prepare.h"
#include "tools/measure/workload.h"

namespace tessera {
namespace {

using Catch::Contains;
using Catch::StartsWith;
using test::TemporaryDirectory;

Config tiny(const std::vector<std::string>& overrides = {}) {
  std::vector<std::string> all = {"runtime.device=cpu", "runtime.threads=1"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return workload("tiny", all);
}

std::vector<Compared> prepared(std::vector<Compared> rows) {
  prepare_rows(rows);
  return rows;
}

/// Two steps of each row.
std::vector<RowFigures> compare(const std::vector<Compared>& rows) {
  std::vector<RowFigures> figures;
  run_ranks(world_of(rows), [&](Communicator& world) {
    const auto found = compare_rows({.rows = rows, .steps = 2}, world);
    if (world.rank() == 0) figures = found;
  });
  return figures;
}

}  // namespace

TEST_CASE("rows of settings begin with a strategy and know short names of keys") {
  const auto rows = compare_by_options(
      tiny({"sharding.strategy=zero1"}),
      "dtype=bf16;  fsdp_flat  live_gathers=1 checkpointing=every 2 ;ddp;sharding.buckets=100");
  REQUIRE(rows.size() == 4);
  CHECK(rows[0].name == "dtype=bf16");
  CHECK(rows[0].config.sharding.strategy == StrategyKind::zero1);
  CHECK(rows[0].config.runtime.compute_dtype == DType::bf16);
  CHECK(rows[1].name == "fsdp_flat  live_gathers=1 checkpointing=every 2");
  CHECK(rows[1].config.sharding.strategy == StrategyKind::fsdp);
  CHECK(rows[1].config.sharding.flatten_parameters);
  CHECK(rows[1].config.sharding.live_gathers == 1);
  CHECK(to_string(rows[1].config.sharding.activation_checkpointing) == "every 2");
  CHECK(rows[1].config.runtime.compute_dtype == DType::f32);
  CHECK(rows[2].config.sharding.strategy == StrategyKind::ddp);
  CHECK(rows[3].config.sharding.buckets == "100");
}

TEST_CASE("a row that is wrong is quoted with the reason") {
  const auto refuses = [](const std::string& rows, const std::string& message) {
    CAPTURE(rows);
    CHECK_THROWS_WITH(compare_by_options(tiny(), rows), Contains(message));
  };
  refuses("fsdp; zero4", "--rows 'zero4': 'zero4' is neither a strategy (ddp, zero1");
  refuses("fsdp dtyp=bf16", "--rows 'fsdp dtyp=bf16': unknown key 'dtyp'");
  refuses("fsdp dtype=bf17", "runtime.compute_dtype: expected one of f32, bf16, f16");
  refuses("fsdp seed=1", "unknown key 'seed'");  // train.seed or sample.seed
  refuses("fsdp;; ddp", "a row is empty");
  refuses("fsdp, ddp", "'fsdp, ddp' is neither a strategy");
  refuses("fsdp bf16", "'fsdp bf16' is neither a strategy");
  refuses("", "expected rows such as");
}

TEST_CASE("rows take ranks and device from each other, and may not differ in devices") {
  const auto with_ranks = [](std::int64_t first, std::int64_t second, StrategyKind kind) {
    Config a = tiny(), b = tiny();
    a.sharding.strategy = b.sharding.strategy = kind;
    a.runtime.ranks = first;
    b.runtime.ranks = second;
    b.runtime.device.reset();
    return std::vector<Compared>{{"a", a}, {"b", b}};
  };
  const auto ranks_of = [](const std::vector<Compared>& rows) {
    CHECK(rows[0].config.runtime.ranks == rows[1].config.runtime.ranks);
    return rows[0].config.runtime.ranks;
  };
  std::vector<Compared> rows = with_ranks(0, 4, StrategyKind::fsdp);
  for (Compared& row : rows) row.config.runtime.device = Device{};
  CHECK(ranks_of(prepared(rows)) == 4);
  rows = with_ranks(0, 0, StrategyKind::single);
  for (Compared& row : rows) row.config.runtime.device.reset();
  CHECK(ranks_of(prepared(rows)) == 1);
  rows[1].config.sharding.strategy = StrategyKind::ddp;
  CHECK_THROWS_WITH(prepared(rows), StartsWith("a: ") && Contains("single is for one rank"));
  rows = with_ranks(2, 4, StrategyKind::fsdp);
  rows[1].config.runtime.device = Device{};
  CHECK(world_of(prepared(rows)).ranks == 4);
  rows[1].config.sharding.timeout = 5;
  CHECK_THROWS_WITH(prepared(rows), Contains("sharding.timeout is 5 in b"));
}

TEST_CASE("rows without threads share the cores among their own ranks") {
  const auto rows = prepared(compare_by_options(tiny({"runtime.threads=0", "train.elastic=4"}),
                                                "ranks=1; ddp ranks=2; ddp ranks=2 threads=3"));
  const int cores = available_threads();
  CHECK(rows[0].config.runtime.threads == cores);
  CHECK(rows[1].config.runtime.threads == std::max(1, cores / 2));
  CHECK(rows[2].config.runtime.threads == 3);
}

TEST_CASE("rows per rank make the batch, which must suit the ranks") {
  Config config = tiny({"sharding.strategy=fsdp", "runtime.ranks=3"});
  CHECK_THROWS_WITH(prepared({{"a", config}}), Contains("data.batch_size 8 is not a multiple"));
  config.places.erase("data.batch_size");
  config.data.rows_per_rank = 2;
  CHECK(prepared({{"a", config}})[0].config.data.batch_size == 6);
}

TEST_CASE("changed keys, and those of them that change results") {
  const auto rows =
      prepared(compare_by_options(tiny(),
                                  "fsdp; zero3 checkpointing=full runtime.threads=2; fsdp "
                                  "dtype=bf16 log_every=3"));
  using Changes = std::vector<std::pair<std::string, std::string>>;
  CHECK(changes_of(rows[0].config, rows[0].config).empty());
  CHECK(changes_of(rows[1].config, rows[0].config) ==
        Changes{{"sharding.strategy", "zero3"},
                {"sharding.activation_checkpointing", "full"},
                {"runtime.threads", "2"}});
  CHECK(computes_otherwise(rows[1].config, rows[0].config).empty());
  CHECK(computes_otherwise(rows[2].config, rows[0].config) ==
        std::vector<std::string>{"runtime.compute_dtype"});
  const auto changes = [&](const std::string& row) {
    return computes_otherwise(compare_by_options(tiny(), row)[0].config, tiny());
  };
  CHECK(changes("fsdp train.seed=2") == std::vector<std::string>{"train.seed"});
  CHECK(changes("fsdp reduce=last_micro_batch") == std::vector<std::string>{"sharding.reduce"});
  CHECK(changes("fsdp kernels.matmul=openblas") == std::vector<std::string>{"kernels.matmul"});
}

TEST_CASE("rows of cuts must have the same bits where sums are formed in the same parts") {
  using Keys = std::vector<std::string>;
  const auto changes = [](const std::vector<std::string>& base, const std::string& row) {
    const auto rows = compare_by_options(tiny(base), row);
    return computes_otherwise(rows[1].config, rows[0].config);
  };
  const std::vector<std::string> grid = {"sharding.grid=2"};
  CHECK(changes(grid, "fsdp ranks=2; fsdp ranks=4 tensor_parallel=2").empty());
  CHECK(changes(grid, "fsdp ranks=2; zero1 ranks=4 context_parallel=2").empty());
  CHECK(changes({}, "fsdp ranks=2; fsdp ranks=4 pipeline_parallel=2").empty());
  CHECK(changes({}, "fsdp ranks=2; fsdp ranks=4 tensor_parallel=2") ==
        Keys{"sharding.tensor_parallel"});
  CHECK(changes(grid, "fsdp ranks=2; fsdp ranks=2 tensor_parallel=2") ==
        Keys{"sharding.tensor_parallel"});
  CHECK(changes({}, "fsdp ranks=2; fsdp ranks=2 pipeline_parallel=2") ==
        Keys{"sharding.pipeline_parallel"});
  CHECK(changes({}, "fsdp ranks=2; fsdp ranks=4") == Keys{"runtime.ranks"});
  CHECK(changes({"train.elastic=8"}, "fsdp ranks=2; fsdp ranks=8 pipeline_parallel=2").empty());
}

TEST_CASE("configurations by name: files, presets, and one name twice") {
  const TemporaryDirectory folder;
  const std::string file = folder / "a.yaml";
  write_file_atomically(file, "optimizer: {learning_rate: 0.5}\n");
  const std::vector<std::string> overrides = {"train.steps=7"};
  const auto rows = compare_by_names({file, "gpt2", file}, overrides);
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].config.optimizer.learning_rate == 0.5);
  CHECK(rows[1].config.model.preset == "gpt2");
  CHECK(rows[2].name == file + " (2)");
  for (const Compared& row : rows) CHECK(row.config.train.steps == 7);
  CHECK_THROWS_WITH(compare_by_names({"gpt2"}, overrides), Contains("two configurations or more"));
  CHECK_THROWS_WITH(compare_by_names({"gpt2", "tiny"}, std::vector<std::string>{"b.yaml"}),
                    Contains("separated by commas"));
}

TEST_CASE("a model's vocabulary comes from the manifest, as in a training run") {
  const TemporaryDirectory folder;
  write_file_atomically(folder / "text.txt", "abcdefg abcdefg");
  prepare({.inputs = {folder / "text.txt"}, .tokenizer = "chars", .out = folder / "data"});
  Config config = tiny({"sharding.strategy=fsdp", "model.vocab_size=0"});
  config.data.train = folder / "data/train.bin";
  const auto rows = prepared({{"a", config}});
  CHECK(rows[0].config.model.vocab_size == 8);
  CHECK_THAT(rows[0].model, Contains("vocabulary 8 from " + std::string(folder / "data")));
}

TEST_CASE("each row computes with its own dtype, checkpointing and instruction set", "[cpu]") {
  const auto figures = compare(
      prepared(compare_by_options(tiny({"runtime.isa=portable"}),
                                  "fsdp; fsdp dtype=bf16; fsdp live_gathers=1 checkpointing=full; "
                                  "fsdp dtype=bf16 isa=software_tiles")));
  REQUIRE(figures.size() == 4);
  CHECK(figures[0].strategy == "fsdp");
  CHECK(figures[0].parameters > 0);
  CHECK_FALSE(same_bits(figures[1], figures[0]));
  CHECK(figures[1].measured.communication < figures[0].measured.communication);
  CHECK(figures[1].measured.parameters == figures[0].measured.parameters);  // f32 masters
  CHECK(same_bits(figures[2], figures[0]));
  CHECK(figures[2].measured.communication < figures[0].measured.communication);
  CHECK(figures[2].activations < figures[0].activations);
  CHECK(figures[3].measured.communication == figures[1].measured.communication);
  CHECK_FALSE(same_bits(figures[3], figures[1]));
}

TEST_CASE("rows with fewer ranks run on the first ones, with the bits of elastic training",
          "[cpu]") {
  // Two bound threads need two cores.
  const std::string bound = available_threads() < 2 ? "" : " pin=true";
  const auto figures =
      compare(prepared(compare_by_options(tiny({"train.elastic=4"}), "ddp ranks=2" + bound +
                                                                         "; ranks=1; fsdp ranks=4; "
                                                                         "zero1 ranks=1 threads=2" +
                                                                         bound)));
  REQUIRE(figures.size() == 4);
  for (const RowFigures& row : figures) CHECK(same_bits(row, figures[0]));
  CHECK(figures[1].measured.bytes_sent == 0);
  CHECK(figures[2].measured.parameters < figures[0].measured.parameters);
  CHECK(figures[3].measured.bytes_sent == 0);
  const std::string too_many = std::to_string(available_threads() + 1);
  CHECK_THROWS_WITH(
      compare(prepared(compare_by_options(tiny(), "ranks=1 pin=true threads=" + too_many))),
      Contains("runtime.pin: " + too_many + " threads for "));
}

TEST_CASE("rows with experts on their ranks have the bits of rows without", "[cpu]") {
  Config config = workload(
      "qwen3-moe-mini", std::vector<std::string>{
                            "model.layers=1", "model.width=16", "model.heads=2",
                            "model.vocab_size=41", "model.experts=4", "model.expert_width=8",
                            "data.sequence_length=9", "runtime.device=cpu", "runtime.threads=1"});
  const auto figures =
      compare(prepared(compare_by_options(config, "fsdp; fsdp expert_parallel=2")));
  CHECK(same_bits(figures[0], figures[1]));
  CHECK(figures[0].expert_bytes_sent == 0);
  CHECK(figures[1].expert_bytes_sent > 0);
}

TEST_CASE("rows of tensor, context and pipeline ranks have the bits of rows without", "[cpu]") {
  const Config config = workload(
      "llama3-8b", std::vector<std::string>{
                       "model.layers=2", "model.width=16", "model.heads=2", "model.kv_heads=2",
                       "model.head_size=8", "model.mlp_width=24", "model.vocab_size=41",
                       "data.sequence_length=8", "data.accumulation_steps=2", "sharding.grid=2",
                       "runtime.device=cpu", "runtime.threads=1"});
  const auto rows = prepared(compare_by_options(
      config,
      "fsdp ranks=2; fsdp ranks=4 tensor_parallel=2; fsdp ranks=4 context_parallel=2; "
      "fsdp ranks=4 pipeline_parallel=2; fsdp ranks=8 tensor_parallel=2 pipeline_parallel=2"));
  const auto figures = compare(rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CAPTURE(rows[i].name);
    CHECK(computes_otherwise(rows[i].config, rows[0].config).empty());
    CHECK(agree(figures[i], figures[0]));
    CHECK(same_bits(figures[i], figures[0]));
  }
}

}  // namespace tessera
