// A run's steps again, bit for bit, and the first tensor in which two runs differ.
#include "tools/replay/replay.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <functional>
#include <map>

#include "models/tokenizers/tokenizer.h"
#include "runtime/crc32c.h"
#include "sharding/checkpoint/folder.h"
#include "sharding/comm/threads/threads.h"
#include "tests/support/error_of.h"
#include "tests/tools/run_program.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/parse.h"
#include "tools/replay/bisect.h"
#include "tools/replay/recorded_run.h"
#include "tools/train/checkpointer.h"
#include "tools/train/resume.h"
#include "tools/train/run_data.h"
#include "tools/train/trainer.h"
#include "tools/watch/spikes.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using nlohmann::json;
using test::Outcome;
using test::TemporaryDirectory;

/// 8 steps on two ranks with checkpoints after 3, 6 and 8.
Config checkpointed_run(const TemporaryDirectory& folder) {
  Config config = test::tiny_run(folder);
  config.data.val.clear();
  config.train.steps = 8;
  config.train.checkpoint_every = 3;
  config.train.keep_last = 9;
  config.runtime.ranks = 2;
  config.sharding.strategy = StrategyKind::fsdp;
  return config;
}

/// The files of a run folder but replay/, with their bytes.
std::map<std::string, std::string> files_of(const fs::path& run) {
  std::map<std::string, std::string> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(run)) {
    const std::string name = entry.path().lexically_relative(run).string();
    if (entry.is_regular_file() && !name.starts_with("replay")) {
      files[name] = read_text_file(entry.path());
    }
  }
  return files;
}

std::vector<json> lines_of(const fs::path& path) {
  std::ifstream file(path);
  std::vector<json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  return fmt::format("{}", fmt::join(lines, "\n"));
}

std::string error_of_bisect(const fs::path& a, const fs::path& b) {
  return test::error_of([&] { bisect(a, b); });
}

/// The run goes on in another folder from a checkpoint of `run` with other masters: change(shard, rank).
fs::path with_other_masters(const Config& run, std::int64_t step, const fs::path& to,
                            const std::function<void(const Shard&, int)>& change) {
  Config config = run;
  config.train.dir = to;
  fs::create_directories(to);
  fs::copy_file(run.train.dir / "metrics.jsonl", to / "metrics.jsonl");
  const ResolvedConfig resolved = resolve(config);
  const RunData data(resolved);
  run_ranks({.ranks = 2, .threads = 1}, [&](Communicator& world) {
    TrainingSession session(resolved, world);
    const Restored restored = restore(session, checkpoint_path(run.train.dir, step));
    session.strategy().write_masters([&] {
      for (const Shard& shard : session.strategy().shards()) change(shard, world.rank());
    });
    Checkpointer checkpointer(config.train, world, [](std::string_view) {});
    CheckpointTexts texts;
    if (world.rank() == 0) {
      texts.state = run_state_text(session, restored.position, {}, data.train.samples(), "");
      texts.files[kConfigFile] = to_yaml(resolved.config);
      texts.files[kModelFile] = session.model().config().dump();
    }
    checkpointer.save(step, true, tensors_to_save(session), std::move(texts));
    const std::string problem = checkpointer.finish();
    if (!problem.empty()) fail("{}", problem);
  });
  train(config);
  return to;
}

/// Bit `bit` of an element of a weight of rank 1 is another one.
fs::path with_flipped_bit(const Config& run, std::int64_t step, const fs::path& to,
                          const std::string& weight, int bit) {
  return with_other_masters(run, step, to, [&](const Shard& shard, int rank) {
    if (rank != 1 || shard.parameter.name() != weight) return;
    auto* const word = reinterpret_cast<std::uint32_t*>(shard.data.raw()) + 5;
    *word ^= 1u << bit;
  });
}

/// Text that can be learned, with a line of rare letters in it.
void write_rare_letters(const TemporaryDirectory& folder) {
  std::string text = test::counting_text();
  text.replace(3000, 60, "qwzxjvkqqzwvxkjqzvwxkqjzvqxkwjzqvxkjwzqvkxjwzqvkxjzwqvkxjwqz");
  write_file_atomically(folder / "text.txt", text);
  prepare({.inputs = {folder / "text.txt"},
           .tokenizer = "chars",
           .out = folder / "data",
           .val_fraction = 0.0});
}

}  // namespace

TEST_CASE("every step of a run is replayed with the bits of its metrics", "[cpu]") {
  const TemporaryDirectory folder;
  Config config = checkpointed_run(folder);
  SECTION("dropout and accumulation") {
    config.model.dropout = 0.1;
    config.data.accumulation_steps = 2;
  }
  SECTION("experts with biases") {
    config.model = test::tiny_model("qwen3-moe-mini");
    config.moe.balance = Balance::bias;
    config.moe.bias_rate = 0.05;
  }
  SECTION("two stages of a pipeline") {
    config.sharding.strategy = StrategyKind::ddp;
    config.sharding.pipeline_parallel = 2;
    config.data.accumulation_steps = 2;
  }
  SECTION("f16, while the loss scale falls") {
    config.runtime.compute_dtype = DType::f16;
  }
  train(config);
  const fs::path run = config.train.dir;
  const auto files = files_of(run);
  for (const std::int64_t step : {1, 3, 5, 8}) {
    const Outcome outcome = test::run({"replay", run.string(), std::to_string(step)});
    CHECK(outcome.err == "");
    REQUIRE(outcome.status == 0);
    CHECK_THAT(outcome.out, Contains(fmt::format("step {} from ", step)) &&
                                Contains(step <= 3 ? "the initial weights" : "step-00000") &&
                                Contains("the bits of metrics.jsonl"));
    const fs::path replayed = run / fmt::format("replay/step_{}", step);
    const json numbers = json::parse(read_text_file(replayed / "step.json"));
    const json line = test::metrics_of(run)[static_cast<std::size_t>(step) - 1];
    CHECK(numbers["gradient_norm"] == line["gradient_norm"]);
    CHECK(fs::file_size(replayed / "trace.json") > 1000);
    std::map<int, std::map<std::string, int>> units;
    for (const json& operation : lines_of(replayed / "operations.jsonl")) {
      ++units[operation["rank"]]
             [operation["phase"].get<std::string>() + " " + operation["unit"].get<std::string>()];
    }
    REQUIRE(units.size() == 2);
    CHECK(units[1].size() >= 5);
  }
  CHECK(files_of(run) == files);
}

TEST_CASE("a replay with other bits than metrics.jsonl names the first such step", "[cpu]") {
  const TemporaryDirectory folder;
  const Config config = checkpointed_run(folder);
  train(config);
  const fs::path metrics = config.train.dir / "metrics.jsonl";
  std::string text = read_text_file(metrics);
  const std::size_t line = text.find("{\"step\": 5, \"loss\": ");
  REQUIRE(line != std::string::npos);
  const std::size_t digit = text.find('.', line) + 3;
  text[digit] = text[digit] == '5' ? '6' : '5';
  write_file_atomically(metrics, text);
  const Outcome outcome = test::run({"replay", config.train.dir.string(), "6"});
  CHECK(outcome.status == 1);
  CHECK_THAT(outcome.err,
             Contains(": step 5 gives loss ") && Contains("but metrics.jsonl has loss "));
}

TEST_CASE("a replay that is not possible is refused with one line", "[cpu]") {
  const TemporaryDirectory folder;
  Config config = checkpointed_run(folder);
  train(config);
  const std::string run = config.train.dir.string();
  CHECK_THAT(test::run({"replay", run, "9"}).err, Contains("has steps 1 to 8; there is no step 9"));
  CHECK_THAT(test::run({"replay", (folder / "none").string(), "1"}).err,
             Contains("has no config.yaml; name the folder of a run"));
  // A run that began from another run's checkpoint.
  config.train.resume = (config.train.dir / "step-000003").string();
  config.train.dir = folder / "second";
  config.train.checkpoint_every = 0;
  train(config);
  CHECK(test::run({"replay", config.train.dir.string(), "4"}).err == "");
  fs::remove_all(folder / "run");
  CHECK_THAT(test::run({"replay", config.train.dir.string(), "4"}).err,
             Contains("no checkpoint before step 4 is left") && Contains("after step 3 from ") &&
                 Contains("train.keep_every"));
}

TEST_CASE("batches that a rollback left out are left out again", "[cpu]") {
  const TemporaryDirectory folder;
  const fs::path run = folder / "run";
  fs::create_directories(run);
  write_file_atomically(run / "config.yaml", "train:\n  steps: 9\n");
  std::string metrics = R"({"event": "start", "step": 0})"
                        "\n";
  const auto step = [&](int number, const std::string& loss) {
    metrics += fmt::format(R"({{"step": {}, "loss": {}, "gradient_norm": 1.5}})"
                           "\n",
                           number, loss);
  };
  for (int i = 1; i <= 5; ++i) step(i, "2.5");
  metrics += R"({"event": "rollback", "step": 3, "to": 3, "batches": 6})"
             "\n";
  step(4, "1.25");
  step(5, "null");
  metrics += R"({"event": "resume", "step": 5, "path": "x", "batches": 8})"
             "\n";
  step(6, "1");
  metrics += R"({"step": 7, "loss": 0.)";  // the run is writing it
  write_file_atomically(run / "metrics.jsonl", metrics);
  const RecordedRun recorded(run);
  const std::vector<std::int64_t> batches = {0, 1, 2, 6, 7, 8, 9};
  for (std::size_t i = 0; i < batches.size(); ++i) {
    CHECK(recorded.batches_before(static_cast<std::int64_t>(i) + 1) == batches[i]);
  }
  CHECK(recorded.steps().size() == 6);
  CHECK(recorded.steps().at(4).loss == 1.25f);
  CHECK(recorded.steps().at(5) == StepNumbersSeen{std::nanf(""), 1.5});
  CHECK_FALSE(recorded.checkpoint_before(9).has_value());
  write_file_atomically(run / "metrics.jsonl", "{\"step\": \"x\"}\n");
  CHECK_THAT(test::error_of([&] { RecordedRun{run}; }),
             Contains("metrics.jsonl:1: not a line of metrics"));
}

TEST_CASE("bisect names the weight with a flipped bit, its rank and its unit", "[cpu]") {
  const TemporaryDirectory folder;
  Config config = checkpointed_run(folder);
  train(config);
  const fs::path other =
      with_flipped_bit(config, 3, folder / "other", "transformer.h.1.mlp.c_fc.weight", 20);
  const Outcome outcome = test::run({"bisect", config.train.dir.string(), other.string()});
  CHECK(outcome.err == "");
  CHECK_THAT(
      outcome.out,
      Contains("step 4 is the first that differs: loss ") &&
          Contains("the first tensor that differs is transformer.h.1.mlp.c_fc.weight of h.1 on "
                   "rank 1, before the step; 1 of ") &&
          Contains(" elements differ, by at most ") && Contains(" at element 5: "));
  CHECK_THAT(joined(bisect(config.train.dir, config.train.dir)),
             Contains("have the same losses and norms"));
}

TEST_CASE("bisect finds the first step between lines of the metrics", "[cpu]") {
  const TemporaryDirectory folder;
  Config config = checkpointed_run(folder);
  config.train.log_every = 4;
  config.sharding.strategy = StrategyKind::zero3;
  train(config);
  const fs::path first = config.train.dir;
  config.train.dir = folder / "other";
  config.optimizer.learning_rate = 2e-2;
  config.optimizer.warmup_steps = 0;
  train(config);
  CHECK_THAT(joined(bisect(first, config.train.dir)),
             Contains("step 2 is the first that differs") &&
                 Contains("the first tensor that differs is transformer.wte.weight of embedding on "
                          "rank 0, before the step"));
}

TEST_CASE("bisect names the tokens of two runs with other data", "[cpu]") {
  const TemporaryDirectory folder;
  Config config = checkpointed_run(folder);
  train(config);
  const fs::path first = config.train.dir;
  config.train.dir = folder / "other";
  config.train.seed = 1;
  config.data.train = folder / "data/val.bin";
  train(config);
  const std::string lines = joined(bisect(first, config.train.dir));
  CHECK_THAT(lines, Contains("step 1 is the first that differs") &&
                        Contains("which embedding_forward reads, tensor ") &&
                        Contains("in forward of embedding, micro-batch 0 of rank 0"));
}

TEST_CASE("bisect names the keys of runs that it cannot compare", "[cpu]") {
  const TemporaryDirectory folder;
  Config config = checkpointed_run(folder);
  config.train.steps = 1;
  train(config);
  const fs::path first = config.train.dir;
  config.train.dir = folder / "other";
  config.model.width = 32;
  config.data.batch_size = 2;
  config.optimizer.learning_rate = 1e-3;
  train(config);
  CHECK_THAT(error_of_bisect(first, config.train.dir),
             Contains("cannot be compared: they differ in model.width, data.batch_size") &&
                 !Contains("learning_rate"));
}

TEST_CASE("the mean of the last twenty losses decides which step is a spike", "[cpu]") {
  SpikeDetector detector(2.0);
  for (int i = 0; i < 4; ++i)
    CHECK_FALSE(detector.spike(100.0f).has_value());  // too few to compare with
  for (int i = 0; i < 30; ++i) CHECK_FALSE(detector.spike(1.0f).has_value());
  CHECK_FALSE(detector.spike(2.0f).has_value());
  const auto mean = detector.spike(2.5f);
  REQUIRE(mean.has_value());
  CHECK(*mean == Approx((19.0 + 2.0) / 20.0));
  CHECK(detector.spike(std::nanf("")).has_value());
  CHECK(*detector.spike(9.0f) == Approx((18.0 + 2.0 + 2.5) / 20.0));
  SpikeDetector off(0.0);
  for (int i = 0; i < 9; ++i) CHECK_FALSE(off.spike(i < 8 ? 1.0f : 1e9f).has_value());
}

TEST_CASE("a step whose loss jumps is kept with the rows of its batch", "[cpu]") {
  const TemporaryDirectory folder;
  Config config = test::tiny_run(folder);
  write_rare_letters(folder);
  config.data.val.clear();
  config.data.batch_size = 1;
  config.train.steps = 240;
  config.train.log_every = 1;
  config.train.checkpoint_every = 0;
  config.train.keep_spikes = 1.5;
  train(config);
  const std::vector<json> spikes = test::events_of(config.train.dir, "spike");
  REQUIRE(spikes.size() >= 1);
  const auto of_letters = std::find_if(spikes.begin(), spikes.end(), [](const json& spike) {
    const json kept = json::parse(read_text_file(spike["path"].get<std::string>()));
    return kept["rows"][0]["text"].get<std::string>().find('q') != std::string::npos;
  });
  REQUIRE(of_letters != spikes.end());
  const auto step = (*of_letters)["step"].get<std::int64_t>();
  const fs::path file = kept_path(config.train.dir, step);
  CHECK((*of_letters)["path"] == file.string());
  const json kept = json::parse(read_text_file(file));
  CHECK(kept["loss"].get<double>() > 1.5 * kept["mean_loss"].get<double>());
  CHECK(kept["loss"] ==
        test::metrics_of(config.train.dir)[static_cast<std::size_t>(step) - 1]["loss"]);
  // The kept rows are those of the loader.
  const ResolvedConfig resolved = resolve(config);
  const test::Rank rank;
  const RunData data(resolved);
  const Batch from_file = kept_rows(file, 0, 1);
  const Batch loaded = data.train.load(kept["batch"], 0, 1, 1);
  CHECK(from_file.inputs.to_vector<std::int32_t>() == loaded.inputs.to_vector<std::int32_t>());
  CHECK(from_file.targets.to_vector<std::int32_t>() == loaded.targets.to_vector<std::int32_t>());
  CHECK_THAT(test::error_of([&] { kept_rows(file, 0, 2); }), Contains("not a kept step"));
  const Outcome replayed = test::run({"replay", config.train.dir.string(), std::to_string(step)});
  CHECK(replayed.err == "");
  CHECK_THAT(replayed.out, Contains("the bits of metrics.jsonl"));
}

TEST_CASE("a batch with a huge attention logit is kept, and its replay names row and unit",
          "[cpu]") {
  const TemporaryDirectory folder;
  Config config = test::tiny_run(folder);
  write_rare_letters(folder);
  config.model = test::tiny_model("llama3-8b");
  config.data.val.clear();
  config.data.batch_size = 4;
  config.train.steps = 60;
  config.train.log_every = 1;
  config.train.checkpoint_every = 20;
  config.train.keep_last = 9;
  config.train.keep_spikes = 1.3;
  config.runtime.ranks = 2;
  config.sharding.strategy = StrategyKind::fsdp;
  train(config);
  // Channel 3 of the stream is large for rare letters only, layers.1 compares tokens by it, and the head takes
  // it as a sign against rare letters.
  const fs::path tokenizer = folder / "data";
  const auto rare = Tokenizer::load(tokenizer)->encode("qwzxjvk");
  const fs::path run =
      with_other_masters(config, 20, folder / "other", [&](const Shard& shard, int) {
        const bool embedding = shard.parameter.name() == "model.embed_tokens.weight";
        const bool compares = shard.parameter.name() == "model.layers.1.self_attn.q_proj.weight" ||
                              shard.parameter.name() == "model.layers.1.self_attn.k_proj.weight";
        const bool head = shard.parameter.name() == "lm_head.weight";
        if (!embedding && !compares && !head) return;
        auto* const values = shard.data.data<float>();
        for (std::int64_t i = 0; i < shard.count(); ++i) {
          const std::int64_t row = (shard.first + i) / 16, channel = (shard.first + i) % 16;
          if (channel != 3) continue;
          const bool is_rare = std::find(rare.begin(), rare.end(), row) != rare.end();
          values[i] = compares ? 10.0f : is_rare ? (head ? -10.0f : 20.0f) : 0.0f;
        }
      });
  const std::vector<json> spikes = test::events_of(run, "spike");
  std::int64_t step = 0, sample = 0, row = 0;
  for (const json& spike : spikes) {
    const json kept = json::parse(read_text_file(spike["path"].get<std::string>()));
    for (const json& of : kept["rows"]) {
      if (of["text"].get<std::string>().find("qz") == std::string::npos) continue;
      step = spike["step"], sample = of["sample"], row = of["row"];
    }
  }
  REQUIRE(step > 20);
  const Outcome outcome = test::run({"replay", run.string(), std::to_string(step)});
  CHECK(outcome.err == "");
  CHECK_THAT(outcome.out,
             Contains(fmt::format("row {} (sample {}) has the largest loss, ", row, sample)) &&
                 Contains("its largest attention logit is ") && Contains(", in layers.1\n"));
  const json watch =
      json::parse(read_text_file(run / fmt::format("replay/step_{}/watch.json", step)));
  // The step's largest logit is that row's, several times those of the other rows.
  const auto logit = [](const json& readings) {
    return readings["attention_logit"][2].get<double>();
  };
  CHECK(watch["units"][2] == "layers.1");
  CHECK(logit(watch) == Approx(logit(watch["rows"][static_cast<std::size_t>(row)])));
  for (const json& of : watch["rows"]) {
    if (of["row"] != row) CHECK(logit(watch) > 3.0 * logit(of));
  }
}

}  // namespace tessera
