// bench_strategies from the command line, and the comparison inside it.
#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/check.h"
#include "runtime/file.h"
#include "runtime/hash.h"
#include "sharding/comm/threads/threads.h"
#include "tests/tools/shell.h"
#include "tools/bench/compare.h"
#include "tools/config/sharding_options.h"
#include "tools/measure/workload.h"
#include "tools/train/resolve.h"

namespace tessera {

using nlohmann::json;
using test::ShellOutcome;
using test::TemporaryDirectory;

namespace {

ShellOutcome bench_strategies(const std::string& arguments, const TemporaryDirectory& folder) {
  return test::shell("bench_strategies " + arguments, folder);
}

}  // namespace

TEST_CASE("bench_strategies: two ranks, all strategies, every figure of the JSON") {
  const TemporaryDirectory folder;
  const std::string file = folder / "figures.json";
  const ShellOutcome outcome = bench_strategies(
      "--device cpu --model tiny --steps 2 --threads 1 --json " + file, folder);  // 2 ranks
  INFO(outcome.text());
  REQUIRE(outcome.status == 0);
  CHECK_THAT(outcome.text(), Catch::EndsWith("All agree: one loss, one gradient norm, the same "
                                             "weights.\n"));
  const json report = json::parse(read_text_file(file));
  CHECK(report["program"] == "bench_strategies");
  CHECK(report["ranks"] == 2);
  CHECK(report["steps"] == 2);
  CHECK(report["config"]["data.batch_size"] == "8");
  const json rows = report["strategies"];
  REQUIRE(rows.size() == strategy_variants().size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const json& row = rows[i];
    CAPTURE(row.dump());
    CHECK(row["strategy"] == strategy_variants()[i]);
    for (const char* key : {"loss", "gradient_norm", "weights_checksum"}) {
      CHECK(row[key] == rows[0][key]);
    }
    CHECK(row["gradient_norm"].get<double>() > 0.1);  // clipping is active
    CHECK(row["bytes_sent"]["predicted"] == row["bytes_sent"]["measured"]);
    CHECK(row["bytes_sent"]["measured"].get<std::int64_t>() > 0);
    std::int64_t sum = 0;
    for (const char* category : {"parameters", "gradients", "optimizer", "slots"}) {
      CHECK(row["memory"][category]["predicted"] == row["memory"][category]["measured"]);
      sum += row["memory"][category]["measured"].get<std::int64_t>();
    }
    CHECK(row["total_bytes"].get<std::int64_t>() <= sum);  // the sum of one rank
    CHECK(2 * row["total_bytes"].get<std::int64_t>() > sum);
    CHECK(row["least_step_ratio"] <= row["step_ratio"]);
    CHECK(row["step_ratio"] <= row["most_step_ratio"]);
    CHECK(row["memory"]["optimizer"]["measured"].get<std::int64_t>() > 0);
    for (const char* key : {"step_ms", "tokens_per_second", "exposed_communication_ms"}) {
      CHECK(row[key].get<double>() > 0.0);
    }
  }
  // Tables of 257 and 19 rows, a norm, and three blocks of two norms and four linears; AdamW keeps
  // 8 bytes for each.
  constexpr int kWidth = 24;
  constexpr int kLinears = 3 * kWidth * kWidth + kWidth * kWidth + 2 * 4 * kWidth * kWidth;
  constexpr int kBiases = 3 * kWidth + kWidth + 4 * kWidth + kWidth;
  constexpr int kParameters = (257 + 19 + 2) * kWidth + 3 * (2 * 2 * kWidth + kLinears + kBiases);
  CHECK(rows[0]["memory"]["optimizer"]["measured"] == 8 * kParameters);
}

namespace {

const std::string kOfLlama = ", kv_heads: 2, mlp_width: 40";
const std::string kExperts = ", experts: 5, expert_width: 16";

/// One loss and every byte of two layers of a preset under every strategy: in bf16 on two ranks,
/// otherwise in f32. Each family that is tied runs in f32 on 8 ranks.
void check_family(const std::string& preset, int ranks, const std::string& keys = "") {
  const TemporaryDirectory folder;
  const std::string dtype = ranks == 2 ? "bf16" : "f32";
  CAPTURE(preset, ranks, dtype);
  const std::string model = folder / "model.yaml", file = folder / "figures.json";
  write_file_atomically(model, "model: {preset: " + preset +
                                   ", layers: 2, heads: 4, width: 24, context: 19, vocab_size: "
                                   "257" +
                                   (preset == "gpt2-mini" ? "" : kOfLlama) + keys +
                                   "}\n"
                                   "data: {batch_size: 8, sequence_length: 19}\n"
                                   "optimizer: {clip_norm: 0.1}\n");
  const ShellOutcome outcome = bench_strategies(
      "--device cpu --threads 1 --steps 2 --rounds 1 --ranks " + std::to_string(ranks) +
          " --dtype " + dtype + " --json " + file + " --model " + model,
      folder);
  INFO(outcome.text());
  REQUIRE(outcome.status == 0);
  CHECK_THAT(outcome.text(), Catch::Contains("All agree: one loss, one gradient norm, the same "
                                             "weights"));
  const json report = json::parse(read_text_file(file));
  REQUIRE(report["strategies"].size() == strategy_variants().size());
  for (const json& row : report["strategies"]) {
    CAPTURE(row.dump());
    CHECK(row["bytes_sent"]["predicted"] == row["bytes_sent"]["measured"]);
    for (const char* category : {"parameters", "gradients", "optimizer", "slots"}) {
      CHECK(row["memory"][category]["predicted"] == row["memory"][category]["measured"]);
    }
  }
}

}  // namespace

TEST_CASE("bench_strategies: one loss and every byte of Llama and Qwen3", "[cpu]") {
  check_family("llama3-mini", 1);
  for (const char* preset : {"llama3-mini", "qwen3-mini", "llama2-7b"}) check_family(preset, 2);
  check_family("llama2-7b", 4);  // not tied: its head is a unit of its own
}

TEST_CASE("bench_strategies: one loss and every byte of Qwen3-MoE and Llama 4", "[cpu]") {
  check_family("qwen3-moe-mini", 1, kExperts);
  for (const char* preset : {"qwen3-moe-mini", "llama4-mini", "llama4-scout"}) {
    check_family(preset, 2, kExperts);
  }
  check_family("llama4-scout", 4, kExperts);  // not tied
}

TEST_CASE("bench_strategies: one loss and every byte of each family on 8 ranks", "[cpu]") {
  check_family("gpt2-mini", 8);
  check_family("llama3-mini", 8);
  check_family("qwen3-mini", 8);
  check_family("qwen3-moe-mini", 8, kExperts);
  check_family("llama4-mini", 8, kExperts);
}

TEST_CASE("bench_strategies: sums in another order agree to rounding") {
  const TemporaryDirectory folder;
  const std::string model = folder / "model.yaml";
  write_file_atomically(model,
                        "model: {layers: 3, heads: 2, width: 24, context: 19, vocab_size: 257}\n"
                        "data: {batch_size: 12, sequence_length: 19}\n"
                        "sharding: {strategy: hsdp, shard_size: 3}\n");
  const ShellOutcome outcome = bench_strategies(
      "--device cpu --ranks 6 --threads 1 --steps 3 --rounds 1 --strategies ddp,fsdp,hsdp --dtype "
      "bf16 "
      "--checkpointing 'every 2' --model " +
          model,
      folder);
  INFO(outcome.text());
  CHECK(outcome.status == 0);
  CHECK_THAT(outcome.text(), Catch::EndsWith("weights, hsdp to rounding.\n"));
}

TEST_CASE("bench_strategies: wrong usage exits with 2, bad input with 1 and one line") {
  const TemporaryDirectory folder;
  CHECK(bench_strategies("--strategies ddp,zero4", folder).status == 2);
  CHECK(bench_strategies("--ranks 0", folder).status == 2);
  const ShellOutcome unknown = bench_strategies("--model gpt5", folder);
  CHECK(unknown.status == 1);
  CHECK_THAT(unknown.text(),
             Catch::StartsWith("bench_strategies: gpt5: there is no such file, and no preset of "
                               "this name; did you mean gpt2?"));
  const ShellOutcome uneven =
      bench_strategies("--ranks 3", folder);  // never another batch than stated
  CHECK(uneven.status == 1);
  CHECK_THAT(uneven.text(), Catch::StartsWith("bench_strategies: ") &&
                                Catch::Contains("data.batch_size 8 is not a multiple"));
}

TEST_CASE(
    "bench_strategies: a file's accumulation and checkpointing hold, and overrides come last") {
  const TemporaryDirectory folder;
  const std::string model = folder / "model.yaml", file = folder / "figures.json";
  write_file_atomically(model,
                        "model: {layers: 3, heads: 2, width: 24, context: 19, vocab_size: 257}\n"
                        "data: {batch_size: 8, sequence_length: 19, accumulation_steps: 2}\n"
                        "sharding: {activation_checkpointing: full, rules: '*.bias -> ddp'}\n");
  const auto activations = [&](const std::string& overrides) {
    const ShellOutcome outcome =
        bench_strategies("--device cpu --steps 1 --threads 1 --strategies fsdp " + overrides +
                             " --json " + file + " --model " + model,
                         folder);
    INFO(outcome.text());
    REQUIRE(outcome.status == 0);
    const json report = json::parse(read_text_file(file));
    CHECK(report["config"]["sharding.rules"] == "*.bias -> ddp");
    return std::pair(report["config"]["data.accumulation_steps"].get<std::string>() + ", " +
                         report["config"]["sharding.activation_checkpointing"].get<std::string>(),
                     report["strategies"][0]["activations_bytes"].get<std::int64_t>());
  };
  const auto [as_written, least] = activations("");
  CHECK(as_written == "2, full");
  const auto [kept, more] = activations("sharding.activation_checkpointing=none");
  CHECK(kept == "2, none");
  const auto [whole, most] = activations("--checkpointing none data.accumulation_steps=1");
  CHECK(whole == "1, none");
  CHECK(least < more);
  CHECK(more < most);
}

TEST_CASE(
    "bench_strategies --pair: any configurations in one call, and what differs between them") {
  const TemporaryDirectory folder;
  const std::string a = folder / "a.yaml", b = folder / "b.yaml", c = folder / "c.yaml";
  const std::string head =
      "model: {layers: 1, heads: 2, width: 8, context: 5, vocab_size: 31}\n"
      "data: {batch_size: ";
  write_file_atomically(a, head + "4, sequence_length: 5}\nsharding: {strategy: fsdp}\n");
  write_file_atomically(b, head + "4, sequence_length: 5}\nsharding: {strategy: zero1}\n");
  write_file_atomically(c, head + "8, sequence_length: 5}\nsharding: {strategy: fsdp}\n");
  const std::string file = folder / "figures.json";
  const ShellOutcome outcome =
      bench_strategies("--device cpu --threads 1 --steps 2 --json " + file + " --pair " + a + "," +
                           b + "," + c + " optimizer.learning_rate=0.01",
                       folder);
  INFO(outcome.text());
  REQUIRE(outcome.status == 0);
  CHECK_THAT(outcome.text(), Catch::Contains(c + ": data.batch_size=8\n") &&
                                 Catch::Contains("computes otherwise: data.batch_size") &&
                                 Catch::EndsWith("Not compared by results: " + c +
                                                 ". All others agree: one loss, one gradient norm, "
                                                 "the same weights.\n"));
  const json report = json::parse(read_text_file(file));
  CHECK(report["config"]["optimizer.learning_rate"] == "0.01");
  CHECK(report["config"]["runtime.ranks"] == "2");
  const json rows = report["strategies"];
  REQUIRE(rows.size() == 3);
  CHECK(rows[0]["name"] == a);
  CHECK(rows[0]["changes"] == json::object());
  CHECK(rows[1]["changes"] == json{{"sharding.strategy", "zero1"}});
  CHECK(rows[1]["must_agree"] == true);
  CHECK(rows[1]["same_bits"] == true);
  CHECK(rows[2]["must_agree"] == false);
  CHECK(rows[2]["same_bits"] == false);
  // Two tables, three norms, four linears.
  CHECK(rows[0]["parameters"] == (31 + 5 + 6) * 8 + (8 * 24 + 24) + (8 * 8 + 8) + 2 * 8 * 32 + 40);
  // Twice the tokens; times are those of the row's own batch.
  CHECK(rows[2]["tokens_per_second"].get<double>() * rows[2]["step_ms"].get<double>() ==
        Approx(40e3));
  CHECK(bench_strategies("--model tiny --pair " + a, folder).status == 2);
  CHECK(bench_strategies("--rows ddp --pair " + a, folder).status == 2);
}

TEST_CASE("strategies with other results do not agree") {
  RowFigures a{.name = "ddp", .loss = 2.0f, .gradient_norm = 0.5, .weights_checksum = 7};
  RowFigures b = a;
  CHECK(agree(a, b));
  b.gradient_norm = std::nextafter(0.5, 1.0);
  CHECK_FALSE(agree(a, b));
  b.summed_apart = 3;
  CHECK(agree(a, b));
  CHECK_FALSE(same_bits(a, b));
  b.loss = 2.00001f;
  CHECK_FALSE(agree(a, b));
  b = a;
  b.weights_checksum = 8;
  CHECK_FALSE(agree(a, b));
}

TEST_CASE("compare_rows: the checksum is that of all weights, in the order of their names") {
  Config config = workload("tiny", {});
  config.optimizer.learning_rate = 0.0;  // the weights stay what they are at first
  std::map<std::string, std::uint64_t> checksums;
  run_ranks({.threads = 1}, [&](Communicator&) {
    const auto model = make_model(resolve(config));
    const auto strategy = make_single_strategy(model->units(), /*seed=*/1);
    for (const Shard& shard : strategy->shards()) {
      const std::vector<float> values = shard.data.to_vector<float>();
      Fnv1a hash;
      hash.add(std::as_bytes(std::span(values)));
      checksums[shard.parameter.name()] = hash.value();
    }
  });
  Fnv1a all;
  for (const auto& [name, checksum] : checksums) all.add(checksum);
  std::vector<RowFigures> figures;
  run_ranks({.threads = 1}, [&](Communicator& world) {
    figures = compare_rows({.rows = compare_by_strategies(config, {"fsdp"}), .steps = 1}, world);
  });
  CHECK(figures.at(0).weights_checksum == all.value());
}

TEST_CASE("a footprint unlike its prediction is an error that names the part") {
  const Footprint predicted{1, 2, 3, 4, 5};
  CHECK_NOTHROW(check_footprint(predicted, predicted, "fsdp"));
  for (const auto& [part, name] : {std::pair(&Footprint::parameters, "parameters"),
                                   {&Footprint::gradients, "gradients"},
                                   {&Footprint::optimizer, "optimizer"},
                                   {&Footprint::communication, "communication memory"},
                                   {&Footprint::bytes_sent, "bytes sent per step"}}) {
    Footprint measured = predicted;
    measured.*part += 4;
    REQUIRE_THROWS_WITH(check_footprint(predicted, measured, "fsdp, step 1"),
                        Catch::StartsWith(fmt::format("fsdp, step 1: {}: ", name)));
  }
}

TEST_CASE("compare_rows: rounds repeat the same bits, the first row's ratio is 1") {
  std::vector<RowFigures> figures;
  run_ranks({.ranks = 2, .threads = 1}, [&](Communicator& world) {
    const auto found =
        compare_rows({.rows = compare_by_strategies(workload("tiny", {}), {"zero1", "fsdp"}),
                      .steps = 2,
                      .rounds = 2},
                     world);
    if (world.rank() == 0) figures = found;
  });
  REQUIRE(figures.size() == 2);
  CHECK(figures[0].name == "zero1");
  CHECK(figures[0].step_ratio == 1.0);
  CHECK(figures[1].step_ratio > 0.0);
  CHECK(same_bits(figures[0], figures[1]));
}

}  // namespace tessera
