// Samples and questions during training: their texts and answers, and that the run keeps its bits.
#include "tools/train/continued_texts.h"

#include <catch2/catch.hpp>

#include "models/tokenizers/utf8.h"
#include "tests/tools/question_file.h"
#include "tests/tools/run_program.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/sharding_options.h"
#include "tools/eval/evaluate.h"
#include "tools/generate/generate.h"
#include "tools/train/trainer.h"

namespace tessera {
namespace {

using Catch::Contains;
using nlohmann::json;
using test::TemporaryDirectory;

/// Three steps on two ranks. The second has samples.
Config short_run(const TemporaryDirectory& folder) {
  Config config = test::tiny_run(folder);
  config.model.dropout = 0.1;
  config.train.steps = 3;
  config.train.eval_every = 0;
  config.runtime.ranks = 2;
  config.runtime.threads = 1;
  return config;
}

Config with_samples(Config config) {
  config.train.dir += "_with_samples";
  config.train.sample_every = 2;
  config.sample.prompt = "31 32 ";
  config.sample.seed = 7;
  config.sample.tokens = 30;  // more than the context has
  return config;
}

std::string generated(const Config& config) {
  std::string text;
  generate({.model = config.train.dir,
            .prompt = config.sample.prompt,
            .sampling = {.temperature = config.sample.temperature, .top_k = config.sample.top_k},
            .tokens = config.sample.tokens,
            .seed = static_cast<std::uint64_t>(config.sample.seed),
            .threads = 1,
            .device = "cpu",
            .ranks = 1},
           [&](std::string_view piece) { text += piece; });
  return text;
}

/// The saved model's answers to the questions of the run.
Evaluation answers_of(const Config& config) {
  EvaluateOptions options;
  options.model = config.train.dir;
  options.device = "cpu";
  options.threads = 1;
  options.hellaswag = config.data.hellaswag;
  return evaluate(options);
}

void check_samples_change_nothing(const Config& plain) {
  const Config sampled = with_samples(plain);
  train(plain);
  train(sampled);
  CHECK((test::model_bytes(sampled.train.dir) == test::model_bytes(plain.train.dir)));
  CHECK(test::results_of(sampled.train.dir) == test::results_of(plain.train.dir));
  const auto events = test::events_of(sampled.train.dir, "sample");
  REQUIRE(events.size() == 3);  // after the first, second and last step
  CHECK(events[1]["step"] == 2);
  CHECK(events[2]["prompt"] == "31 32 ");
  CHECK(events[2]["text"] == generated(sampled));
  CHECK(test::events_of(plain.train.dir, "sample").empty());
}

}  // namespace

TEST_CASE("samples: a run with them has the bits of one without, under every strategy") {
  for (const std::string& variant : strategy_variants()) {
    CAPTURE(variant);
    const TemporaryDirectory folder;
    check_samples_change_nothing(variant_of(short_run(folder), variant));
  }
}

TEST_CASE("samples: the same with experts on two ranks, in two micro-batches") {
  const TemporaryDirectory folder;
  Config config = variant_of(short_run(folder), "fsdp");
  config.model = test::tiny_model("qwen3-moe-mini");
  config.model.experts_per_token = 2;
  config.data.accumulation_steps = 2;
  config.sharding.expert_parallel = 2;
  check_samples_change_nothing(config);
}

TEST_CASE("samples: the same in stages of a pipeline, whose model is on no rank") {
  const TemporaryDirectory folder;
  const auto checks_in_stages = [&](const char* preset, ShardingConfig sharding) {
    CAPTURE(preset);
    Config config = variant_of(short_run(folder), "fsdp");
    config.train.dir = folder / preset;
    config.model = test::tiny_model(preset);
    config.model.layers = 4;
    if (sharding.tensor_parallel > 1) config.model.kv_heads = 2;
    config.data.batch_size = 8;
    config.data.sequence_length = 8;
    config.data.accumulation_steps = 4;
    config.runtime.ranks = 4;
    config.sharding.pipeline_parallel = 2;
    config.sharding.pipeline_schedule = sharding.pipeline_schedule;
    config.sharding.pipeline_chunks = sharding.pipeline_chunks;
    config.sharding.tensor_parallel = sharding.tensor_parallel;
    check_samples_change_nothing(config);
  };
  constexpr auto kInterleaved = PipelineSchedule::interleaved;
  checks_in_stages("gpt2-mini", {});  // tied ends
  checks_in_stages("llama4-mini", {.pipeline_schedule = kInterleaved, .pipeline_chunks = 2});
  checks_in_stages("llama3-8b", {.tensor_parallel = 2});
}

TEST_CASE(
    "samples: texts are in the log, the events and TensorBoard's file, a line on the console") {
  const TemporaryDirectory folder;
  Config config = with_samples(short_run(folder));
  config.runtime.ranks = 1;
  config.sample.prompt.clear();
  write_file_atomically(folder / "prompts.json", "[\"1 2 \", [0, 1]]");
  config.sample.prompts = folder / "prompts.json";
  config.sample.temperature = 0.0;
  config.sample.tokens = 80;
  train(config);
  const auto events = test::events_of(config.train.dir, "sample");
  REQUIRE(events.size() == 6);
  const auto text = events[4]["text"].get<std::string>();
  CHECK(text.starts_with("1 2 "));
  CHECK(text.size() == 84);
  CHECK(events[5]["text"].get<std::string>().size() == 82);
  const std::string log = read_text_file(config.train.dir / "log.txt");
  CHECK_THAT(log, Contains("sample 1 after step 3\n    " + text + "\n"));
  CHECK_THAT(log, Contains("sample 2 after step 3\n"));
  for (const auto& entry : std::filesystem::directory_iterator(config.train.dir)) {
    if (entry.path().filename().string().find("tfevents") == std::string::npos) continue;
    CHECK_THAT(read_text_file(entry.path()), Contains("sample/2") && Contains(text));
  }
  const std::string line = short_form({.prompt = "1 2 ", .text = text});
  CHECK(line.size() == 60);
  CHECK_THAT(line, Contains(text.substr(0, 50)));
}

TEST_CASE("samples: lines of a text are indented, and control characters do not reach a terminal") {
  CHECK(long_form({.prompt = {}, .text = "a\n\tb\x1b[2Jc\x7f\n"}) == "    a\n    \tb?[2Jc?\n    ");
  CHECK_THAT(short_form({.prompt = {}, .text = "a\nb\x1b"}),
             !Contains("\n") && !Contains("\x1b") && Contains("a b"));
  std::string longer;  // a cut after 55 bytes would split a character of three
  for (int i = 0; i < 40; ++i) longer += "\u20ac";
  CHECK(short_form({.prompt = {}, .text = longer}) == '"' + longer.substr(0, 54) + "...\"");
}

TEST_CASE("samples: a text that is no valid UTF-8 is repaired") {
  const TemporaryDirectory folder;
  write_file_atomically(folder / "text.txt", test::counting_text());
  prepare({.inputs = {folder / "text.txt"}, .tokenizer = "bytes", .out = folder / "bytes"});
  Config config = with_samples(short_run(folder));
  config.runtime.ranks = 1;
  config.data.train = folder / "bytes/train.bin";
  config.data.val.clear();
  config.train.steps = 1;
  train(config);  // all bytes are nearly equally likely
  const auto events = test::events_of(config.train.dir, "sample");
  REQUIRE(events.size() == 1);
  CHECK_THAT(events[0]["text"].get<std::string>(), Contains("\uFFFD"));
  CHECK(is_valid_utf8(read_text_file(config.train.dir / "log.txt")));
}

TEST_CASE("samples: keys that do not suit are named before anything is written") {
  const TemporaryDirectory folder;
  Config good = with_samples(short_run(folder));
  good.runtime.ranks = 1;
  const auto refused = [&](const Config& config, const std::string& message) {
    CHECK_THROWS_WITH(train(config), Contains(message));
    CHECK_FALSE(std::filesystem::exists(config.train.dir));
  };
  Config bad = good;
  bad.sample.prompt = "7 x";
  refused(bad, "sample.prompt: ");
  bad.sample.prompts = folder / "nothing.txt";
  refused(bad, "sample.prompt is set too");
  bad.sample.prompt.clear();
  refused(bad, "sample.prompts: ");
  write_file_atomically(folder / "prompts.txt", "[[0, 77]]");
  bad.sample.prompts = folder / "prompts.txt";
  refused(bad, "token 77 is outside");
  Config none = good;
  none.data.train = "synthetic:uniform";
  none.data.val.clear();
  none.model.vocab_size = 11;
  refused(none, "train.sample_every: samples need a tokenizer");
}

TEST_CASE(
    "questions: a run answers as tessera eval does, on any number of ranks, and keeps its bits") {
  const TemporaryDirectory folder;
  std::vector<Question> questions;
  for (std::int32_t i = 0; i < 7; ++i) {
    questions.push_back({.context = {1, i, 2},
                         .endings = {{i, 3, 4}, {5}, {i}, {6, 7}},
                         .label = static_cast<std::size_t>(i) % 4});
  }
  // The first of equal endings is the answer. A rank without a question answers this one again.
  questions[6] = {.context = {1, 2}, .endings = {{3}, {3}, {3}, {3}}, .label = 0};
  write_file_atomically(folder / "questions.bin", test::question_file(questions));
  Config plain = variant_of(short_run(folder), "fsdp");
  plain.train.log_every = 0;
  train(plain);
  Config asked = plain;
  asked.train.dir += "_asked";
  asked.data.hellaswag = folder / "questions.bin";
  asked.train.hellaswag_every = 2;
  train(asked);
  CHECK((test::model_bytes(asked.train.dir) == test::model_bytes(plain.train.dir)));
  const auto events = test::events_of(asked.train.dir, "hellaswag");
  REQUIRE(events.size() == 2);
  CHECK(events[0]["step"] == 2);
  CHECK(events[1]["questions"] == 7);
  const Evaluation evaluation = answers_of(asked);
  CHECK(events[1]["right"] == evaluation.right);
  const double share = static_cast<double>(evaluation.right) / 7.0;
  CHECK(test::metrics_of(asked.train.dir).back()["hellaswag"] == share);
  CHECK_THAT(read_text_file(asked.train.dir / "log.txt"),
             Contains(fmt::format("hellaswag {:.4f}: {} of 7", share, evaluation.right)));
  // Without a number of steps only the last step has one. Three ranks have questions left over.
  asked.train.dir += "_once";
  asked.train.hellaswag_every = 0;
  asked.runtime.ranks = 3;
  asked.data.batch_size = 6;
  train(asked);
  REQUIRE(test::events_of(asked.train.dir, "hellaswag").size() == 1);
  const Evaluation third = answers_of(asked);
  CHECK(test::events_of(asked.train.dir, "hellaswag")[0]["right"] == third.right);
  // Ranks with the same rows answer the same questions.
  const auto checks_cut = [&](const std::string& name, ShardingConfig sharding) {
    CAPTURE(name);
    Config cut = asked;
    cut.train.dir += name;
    cut.runtime.ranks = 4;
    cut.data.batch_size = 4;
    cut.data.accumulation_steps = 2;
    cut.data.sequence_length = 8;
    sharding.strategy = StrategyKind::ddp;
    sharding.reduce = ReduceAfter::every_micro_batch;
    cut.sharding = sharding;
    train(cut);
    CHECK(test::events_of(cut.train.dir, "hellaswag")[0]["right"] == answers_of(cut).right);
  };
  checks_cut("_tensor", {.tensor_parallel = 2});
  checks_cut("_context", {.context_parallel = 2});
  checks_cut("_pipeline", {.pipeline_parallel = 2});
  // An ending that the model cannot read is found before the first step.
  questions[0].endings[1].resize(25);
  write_file_atomically(folder / "long.bin", test::question_file(questions));
  asked.data.hellaswag = folder / "long.bin";
  asked.train.dir += "_long";
  CHECK_THROWS_WITH(train(asked),
                    Contains("data.hellaswag: ") && Contains("an ending of 25 tokens"));
  CHECK_FALSE(std::filesystem::exists(asked.train.dir));
}

}  // namespace tessera
