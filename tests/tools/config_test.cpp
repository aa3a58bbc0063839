#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "runtime/error.h"
#include "runtime/file.h"
#include "sharding/plan/placement.h"
#include "tests/support/error_of.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"
#include "tools/config/keys.h"
#include "tools/config/parse.h"
#include "tools/config/reference.h"
#include "tools/config/sharding_options.h"
#include "tools/train/events.h"
#include "tools/train/metrics.h"

namespace tessera {
namespace {

using Catch::Contains;
using Catch::Equals;

Config parse(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  return parse_config(yaml, "run.yaml", overrides);
}

/// The message of the error that parsing raises.
std::string error_of(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  return test::error_of([&] { parse(yaml, overrides); });
}

std::vector<std::string> values_of(Config config) {
  std::vector<std::string> values;
  for (const Key& key : keys_of(config)) values.push_back(key.text());
  return values;
}

}  // namespace

TEST_CASE("a value of every type is read from YAML") {
  const Config config = parse(R"(
# A comment.
model: {preset: gpt2, layers: 3, dropout: 0.25}
data:
  train: "some where/train.bin"
  batch_size: 12
optimizer:
  learning_rate: 3e-4
  nesterov: true
)");
  REQUIRE(config.model.preset == "gpt2");
  REQUIRE(config.model.layers == 3);
  REQUIRE(config.model.dropout == 0.25);
  REQUIRE(config.data.train == "some where/train.bin");
  REQUIRE(config.data.batch_size == 12);
  REQUIRE(config.optimizer.learning_rate == 3e-4);
  REQUIRE(config.optimizer.nesterov);
  REQUIRE(config.data.sequence_length == Config().data.sequence_length);
}

TEST_CASE("a missing key keeps its default") {
  for (const char* yaml : {"", "\n", "# nothing\n", "---\n", "model:\n", "model: {}\ntrain:\n"}) {
    CAPTURE(yaml);
    REQUIRE(values_of(parse(yaml)) == values_of(Config()));
  }
}

TEST_CASE("an empty path may be written as nothing") {
  REQUIRE(parse("data:\n  val:\n").data.val.empty());
  REQUIRE(parse("data:\n  val: ''\n").data.val.empty());
  REQUIRE(parse("", {"data.val="}).data.val.empty());
}

TEST_CASE("overrides come after the file and the last one wins") {
  const std::string yaml = "train: {steps: 10, seed: 3}\n";
  const Config config =
      parse(yaml, {"train.steps=20", "train.steps=30", "data.train=a=b.bin", "runtime.threads=2"});
  REQUIRE(config.train.steps == 30);
  REQUIRE(config.train.seed == 3);
  REQUIRE(config.data.train == "a=b.bin");
  REQUIRE(config.runtime.threads == 2);
}

TEST_CASE("an unknown key is named with file, line and the nearest key") {
  CHECK(error_of("model:\n  layers: 2\noptimizer:\n  learnig_rate: 1\n") ==
        "run.yaml:4: unknown key 'optimizer.learnig_rate'; did you mean "
        "'optimizer.learning_rate'?");
  CHECK(error_of("model:\n  learning_rate: 1\n") ==
        "run.yaml:2: unknown key 'model.learning_rate'; did you mean 'optimizer.learning_rate'?");
  CHECK_THAT(error_of("model:\n  colour: red\n"),
             Contains("run.yaml:2: unknown key 'model.colour'") && Contains("config-reference"));
}

TEST_CASE("an unknown section is named with file, line and the nearest name") {
  CHECK(error_of("optimzer:\n  beta1: 0.5\n") ==
        "run.yaml:1: unknown section 'optimzer'; did you mean 'optimizer'?");
  CHECK(error_of("\nbatch_size: 4\n") ==
        "run.yaml:2: unknown section 'batch_size'; did you mean 'data.batch_size'?");
  CHECK(error_of("data.batch_size: 4\n") ==
        "run.yaml:1: unknown section 'data.batch_size'; write 'batch_size:' inside the section "
        "'data:'");
}

TEST_CASE("a value of the wrong kind is named with file, line and the expected kind") {
  CHECK(error_of("data:\n  train: x\n  batch_size: many\n") ==
        "run.yaml:3: data.batch_size: expected a whole number from 1 to 16777216, got \"many\"");
  CHECK(error_of("data:\n  batch_size: 1.5\n") ==
        "run.yaml:2: data.batch_size: expected a whole number from 1 to 16777216, got \"1.5\"");
  CHECK(error_of("data:\n  batch_size: 0\n") ==
        "run.yaml:2: data.batch_size: expected a whole number from 1 to 16777216, got \"0\"");
  CHECK(error_of("data:\n  batch_size:\n") ==
        "run.yaml:2: data.batch_size: expected a whole number from 1 to 16777216, got \"\"");
  CHECK(error_of("optimizer:\n  name: adam\n") ==
        "run.yaml:2: optimizer.name: expected one of adamw, sgd, muon, got \"adam\"; write adamw");
  CHECK(error_of("optimizer:\n  nesterov: yes\n") ==
        "run.yaml:2: optimizer.nesterov: expected true or false, got \"yes\"; write true");
  CHECK(error_of("model:\n  dropout: 1\n") ==
        "run.yaml:2: model.dropout: expected a number >= 0 and < 1, got \"1\"");
  CHECK(error_of("optimizer:\n  epsilon: 0\n") ==
        "run.yaml:2: optimizer.epsilon: expected a number > 0, got \"0\"");
}

TEST_CASE("sharding: keys become options") {
  const auto options = [](const std::vector<std::string>& overrides) {
    return sharding_options(parse("", overrides));
  };
  const ShardingOptions defaults = options({});
  CHECK(defaults.strategy == StrategyKind::single);
  CHECK(defaults.reshard_group == 0);
  CHECK(defaults.buckets == "unit");
  CHECK((defaults.prefetch_in_forward && defaults.prefetch_in_backward));
  CHECK(defaults.reduce_every_micro_batch);
  CHECK(options({"sharding.strategy=hsdp", "sharding.shard_size=3"}).shard_size == 3);
  CHECK(options({"sharding.flatten_parameters=true"}).flatten_parameters);
  CHECK(options({"sharding.buckets=h.0,h.4"}).buckets == "h.0,h.4");
  CHECK(options({"sharding.reshard_after_forward=false"}).reshard_group == 1);
  CHECK(options({"sharding.reshard_after_forward=4"}).reshard_group == 4);
  CHECK(options({"sharding.live_gathers=3"}).live_gathers == 3);
  CHECK_FALSE(options({"sharding.prefetch=backward"}).prefetch_in_forward);
  CHECK(options({"sharding.prefetch=backward"}).prefetch_in_backward);
  CHECK(options({"sharding.prefetch=forward"}).prefetch_in_forward);
  CHECK_FALSE(options({"sharding.prefetch=forward"}).prefetch_in_backward);
  CHECK_FALSE(options({"sharding.prefetch=none"}).prefetch_in_backward);
  CHECK_FALSE(options({"sharding.reduce=last_micro_batch"}).reduce_every_micro_batch);
  CHECK_FALSE(defaults.sum_replicas_once);
  CHECK(options({"sharding.sum_replicas_once=true"}).sum_replicas_once);
  CHECK(defaults.rules.empty());
  CHECK(options({"sharding.rules=*.bias -> ddp, h.* -> hsdp_flat"}).rules ==
        std::vector<PlacementRule>{{"*.bias", StrategyKind::ddp},
                                   {"h.*", StrategyKind::hsdp, /*flatten_parameters=*/true}});
  CHECK(options({"sharding.reduce_dtype=bf16"}).reduce_dtype == DType::bf16);
  CHECK(options({"runtime.compute_dtype=f16"}).compute_dtype == DType::f16);
  CHECK(options({"data.accumulation_steps=5"}).micro_batches == 5);
}

TEST_CASE("sharding: bad values are named with file, line and key") {
  CHECK(error_of("sharding:\n  reshard_after_forward: maybe\n") ==
        "run.yaml:2: sharding.reshard_after_forward: expected true, false or a number of ranks >= "
        "2, got \"maybe\"");
  for (const std::string text : {"1", "0", "-2", "2.5", "4 ", ""}) {
    CAPTURE(text);
    CHECK_THAT(error_of("", {"sharding.reshard_after_forward=" + text}),
               Contains("number of ranks"));
  }
  CHECK(error_of("sharding:\n  rules: '*.bias ddp'\n") ==
        "run.yaml:2: sharding.rules: the rule '*.bias ddp' has another form than 'name pattern -> "
        "strategy'");
  CHECK_THAT(error_of("sharding:\n  rules: '*.bias -> dpd'\n"),
             Contains("run.yaml:2: sharding.rules: unknown strategy 'dpd'") && Contains("ddp"));
  CHECK_THAT(error_of("sharding:\n  rules: *.bias -> ddp\n"),
             Contains("run.yaml:2: ") && Contains("put a value that begins with '*' in quotes"));
  CHECK_THAT(error_of("sharding: {strategy: zero4}"), Contains("one of single, ddp, zero1"));
  CHECK_THAT(error_of("runtime: {compute_dtype: f64}"), Contains("one of f32, bf16, f16"));
}

TEST_CASE("sharding: variants keep the keys that suit them") {
  const Config base = parse("", {"sharding.strategy=hsdp", "sharding.shard_size=2",
                                 "sharding.reshard_after_forward=2", "sharding.live_gathers=5"});
  for (const std::string& name : strategy_variants()) {
    CAPTURE(name);
    const ShardingOptions options = sharding_options(variant_of(base, name));
    CHECK(variant_name(options) == name);
    CHECK(options.live_gathers == 5);
    CHECK(options.shard_size == (name == "hsdp" ? 2 : 0));
    const bool takes_groups = name.starts_with("fsdp") || name == "hsdp";
    CHECK(options.reshard_group == (takes_groups ? 2 : 0));
    CHECK_NOTHROW(check_options(options, {.ranks = 4}));
  }
  REQUIRE_THROWS_WITH(variant_of(base, "single"), Contains("ddp, zero1"));
}

TEST_CASE("sharding: variants keep the rules, and an hsdp rule the size of its shards") {
  const Config base = parse(
      "", {"sharding.shard_size=2", "sharding.strategy=fsdp", "sharding.rules=*.mlp.* -> hsdp"});
  for (const std::string& name : strategy_variants()) {
    CAPTURE(name);
    const ShardingOptions options = sharding_options(variant_of(base, name));
    CHECK(options.rules == base.sharding.rules);
    CHECK(options.shard_size == 2);
    CHECK_NOTHROW(check_options(options, {.ranks = 4}));
  }
}

TEST_CASE("text of several forms is checked where it stands") {
  for (const std::string text : {"none", "full", "every 2", "from 6"}) {
    const Config config = parse("sharding: {activation_checkpointing: " + text + "}");
    CHECK(to_string(config.sharding.activation_checkpointing) == text);
  }
  CHECK_THAT(error_of("sharding:\n  activation_checkpointing: every two\n"),
             Equals("run.yaml:2: sharding.activation_checkpointing: expected none, full, 'every K' "
                    "(blocks 0, K, 2 K, ...) or 'from I' (block I and later), got \"every two\""));
  CHECK_THAT(error_of("", {"sharding.activation_checkpointing=from"}),
             Contains("command line: sharding.activation_checkpointing") && Contains("\"from\""));
}

TEST_CASE("numbers that do not fit or are not finite are refused") {
  for (const char* text : {"9223372036854775808", "1e3", "0x10", "1_000", "++1", "1 2", "-1"}) {
    CAPTURE(text);
    REQUIRE_THAT(error_of("", {std::string("train.steps=") + text}),
                 Contains("train.steps: expected a whole number from 1 to"));
  }
  for (const char* text : {"nan", ".inf", "inf", "1e999", "-0.1", "fast"}) {
    CAPTURE(text);
    REQUIRE_THAT(error_of("", {std::string("optimizer.learning_rate=") + text}),
                 Contains("optimizer.learning_rate: expected a number >= 0"));
  }
  REQUIRE(parse("", {"train.steps=+7"}).train.steps == 7);
}

TEST_CASE("a key or section that occurs twice is refused") {
  CHECK(error_of("train:\n  steps: 1\n  steps: 2\n") ==
        "run.yaml:3: key 'train.steps' occurs twice");
  CHECK(error_of("train:\n  steps: 1\ndata:\n  batch_size: 1\ntrain:\n  seed: 1\n") ==
        "run.yaml:5: section 'train' occurs twice");
}

TEST_CASE("a document that is not sections of keys is refused with its line") {
  CHECK_THAT(error_of("train: fast\n"),
             Contains("run.yaml:1: section 'train'") && Contains("got \"fast\""));
  CHECK_THAT(error_of("\ntrain:\n  - steps\n"),
             Contains("run.yaml:2: section 'train'") && Contains("a list"));
  CHECK_THAT(error_of("- train\n"),
             Contains("run.yaml:1: expected sections") && Contains("a list"));
  CHECK_THAT(error_of("train\n"), Contains("run.yaml:1: expected sections"));
  CHECK_THAT(error_of("train:\n  steps: [1, 2]\n"),
             Contains("run.yaml:2: train.steps: expected one value, got a list"));
  CHECK_THAT(error_of("train:\n  steps: {a: 1}\n"), Contains("got a map"));
  CHECK_THAT(error_of("? [a, b]\n: 1\n"), Contains("run.yaml:1: expected a name, got a list"));
  CHECK_THAT(error_of("train:\n---\ntrain:\n"), Contains("expected 1 YAML document, got 2"));
}

TEST_CASE("text that is not YAML is refused with its line") {
  CHECK_THAT(error_of("train:\n  steps: 1\n dir: x\n"), Contains("run.yaml:3: not valid YAML"));
  CHECK_THAT(error_of("train: {steps: 1\n"), Contains("not valid YAML"));
  CHECK_THAT(error_of("train:\n\tsteps: 1\n"), Contains("run.yaml:2: not valid YAML"));
}

TEST_CASE("a line that is indented with a TAB is named as such") {
  CHECK_THAT(error_of("train:\n\tsteps: 1\n"), Contains("run.yaml:2:") && Contains("TAB"));
  CHECK_THAT(error_of("train:\n  steps: 1\n dir: x\n"), !Contains("TAB"));
}

TEST_CASE("whole numbers are bounded, so that sizes are refused before anything is built") {
  Config config;
  for (const Key& key : keys_of(config)) {
    if (!key.expected.starts_with("a whole number")) continue;
    CAPTURE(key.name);
    CHECK_FALSE(key.parse("9223372036854775807"));
    CHECK_FALSE(key.parse("-1"));
  }
  CHECK_THAT(error_of("", {"model.layers=100000"}), Contains("a whole number from 0 to "));
  CHECK_THAT(error_of("", {"data.batch_size=4611686018427387904"}), Contains("from 1 to 16777216"));
}

TEST_CASE("an error of several keys gets the place of the first one that it names") {
  const Config config = parse("train:\n  steps: 5\n", {"optimizer.warmup_steps=9"});
  const auto message = [&](const std::string& text) {
    return test::error_of([&] { check_with_place(config, [&] { throw Error(text); }); });
  };
  CHECK(message("train.steps 5 is less than optimizer.warmup_steps 9") ==
        "run.yaml:2: train.steps 5 is less than optimizer.warmup_steps 9");
  CHECK(message("optimizer.warmup_steps 9 is more than train.steps 5") ==
        "command line: optimizer.warmup_steps 9 is more than train.steps 5");
  CHECK(message("data.train is not set") == "data.train is not set");
  const auto key_message = [&](std::string_view key) {
    return test::error_of([&] { check_key(config, key, [] { throw Error("cannot open x"); }); });
  };
  CHECK(key_message("train.steps") == "run.yaml:2: train.steps: cannot open x");
  CHECK(key_message("data.val") == "data.val: cannot open x");
}

TEST_CASE("errors of overrides name the command line") {
  CHECK(error_of("", {"train.steps"}) ==
        "command line: 'train.steps' is not of the form key=value");
  CHECK(error_of("", {"train.step=1"}) ==
        "command line: unknown key 'train.step'; did you mean 'train.steps'?");
  CHECK(error_of("", {"train.steps=x"}) ==
        "command line: train.steps: expected a whole number from 1 to 1099511627776, got \"x\"");
  CHECK_THAT(error_of("", {"=1"}), Contains("command line: unknown key ''"));
}

TEST_CASE("a configuration is read from a file, and errors name its path") {
  const test::TemporaryDirectory folder;
  write_file_atomically(folder / "c.yaml", "train:\n  steps: 5\n");
  REQUIRE(load_config(folder / "c.yaml").train.steps == 5);
  write_file_atomically(folder / "c.yaml", "train:\n  stepz: 5\n");
  REQUIRE_THROWS_WITH(load_config(folder / "c.yaml"),
                      Contains((folder / "c.yaml").string() + ":2: unknown key 'train.stepz'"));
  REQUIRE_THROWS_WITH(load_config(folder / "none.yaml"), Contains("none.yaml"));
}

TEST_CASE("steps to profile are a first and a last one, at most 100") {
  const auto profile = [](const std::string& text) {
    return parse("", {"train.profile=" + text}).train.profile;
  };
  CHECK(profile("10-12").first == 10);
  CHECK(profile("10-12").last == 12);
  CHECK(profile("7").contains(7));
  CHECK_FALSE(profile("7").contains(8));
  CHECK_FALSE(profile("").contains(0 + 1));
  CHECK(profile("1-100").last == 100);
  for (const char* text : {"0-3", "3-2", "1-101", "a", "3-", "-3", "3--5", "1-2-3", "1e1"}) {
    CAPTURE(text);
    CHECK_THROWS_WITH(profile(text), Contains("train.profile") && Contains("steps such as 10-12"));
  }
}

TEST_CASE("a schedule's table is a list of steps and factors") {
  const Config config = parse("optimizer:\n  table:\n    - [1, 1]\n    - [100, 0.5]\n");
  CHECK(config.optimizer.table == std::vector<ScheduleStage>{{1, 1.0}, {100, 0.5}});
  CHECK(parse("", {"optimizer.table=[[1, 1], [100, 5e-1]]"}).optimizer.table ==
        config.optimizer.table);
  CHECK(parse(to_yaml(config)).optimizer.table == config.optimizer.table);
  CHECK(parse("optimizer: {table: }").optimizer.table.empty());
  CHECK(error_of("optimizer:\n  table:\n    - [1, 1]\n    - [1, 2]\n") ==
        "run.yaml:4: optimizer.table: the steps of a table rise; [1, 2] follows [1, 1]");
  CHECK_THAT(error_of("optimizer:\n  table:\n    - [0, 1]\n"), Contains("a step from 1 on"));
  CHECK_THAT(error_of("optimizer:\n  table:\n    - 3\n"), Contains("[step, factor]"));
  CHECK_THAT(error_of("", {"optimizer.table=3"}), Contains("optimizer.table: expected a list of"));
}

TEST_CASE("a written configuration reads back to the same values") {
  const Config config =
      parse("", {"model.dropout=0.1", "optimizer.learning_rate=0.00029999999999",
                 "data.train=a: b # c.bin", "data.val=é \"quoted\" \\ x", "train.dir= spaces ",
                 "train.profile=3-5", "train.seed=123456789", "optimizer.nesterov=true",
                 "optimizer.name=sgd", "optimizer.table=[[2, 0.5]]",
                 "optimizer.groups=[{match: '*.a', table: [[3, 1]], frozen: false}]"});
  REQUIRE(values_of(parse(to_yaml(config))) == values_of(config));
  REQUIRE(values_of(config) != values_of(Config()));
}

TEST_CASE("a written configuration holds every key") {
  const std::string yaml = to_yaml(Config());
  REQUIRE_THAT(yaml, Contains("data:\n  train: \"\"\n") && Contains("batch_size: 8\n"));
  Config config;
  for (const Key& key : keys_of(config)) {
    const std::string leaf = key.name.substr(key.name.find('.') + 1);
    REQUIRE_THAT(yaml, Contains("  " + leaf + ": "));
  }
}

TEST_CASE("the table is well formed") {
  Config config;
  std::set<std::string> names, known;
  for (const Section& section : sections()) known.insert(section.name);
  for (const Key& key : keys_of(config)) {
    CAPTURE(key.name);
    REQUIRE(names.insert(key.name).second);
    REQUIRE(known.contains(std::string(key.section())));
    REQUIRE_FALSE(key.documentation.empty());
    REQUIRE(key.documentation.find('|') == std::string::npos);  // would end the table's cell
    REQUIRE(key.parse(key.text()));                             // the default is allowed
  }
}

TEST_CASE("docs/configuration.md is generated from the table") {
  // To renew: build/bin/tessera config-reference > docs/configuration.md
  REQUIRE(read_text_file(TESSERA_SOURCE_DIR "/docs/configuration.md") == configuration_reference());
}

TEST_CASE("the reference tells every key's default, values and meaning") {
  const std::string text = configuration_reference();
  Config config;
  for (const Key& key : keys_of(config)) {
    REQUIRE_THAT(text, Contains("| `" + key.name + "` |") && Contains(key.documentation));
  }
  REQUIRE_THAT(text, Contains("| `data.batch_size` | `8` | a whole number from 1 to 16777216 |"));
  REQUIRE_THAT(text, Contains("| `optimizer.name` | `adamw` | one of adamw, sgd, muon |"));
}

TEST_CASE("the reference lists every field and event of metrics.jsonl") {
  const std::string text = configuration_reference();
  REQUIRE(metric_fields().size() > 20);
  for (const MetricField& field : metric_fields()) {
    REQUIRE_THAT(text, Contains("| `" + std::string(field.name) + "` | "));
  }
  for (const EventDescription& event : run_events()) {
    REQUIRE_THAT(text, Contains("| `" + std::string(event.name) + "` | "));
  }
}

}  // namespace tessera
