// optimizer.groups: the text, the group of every parameter, bits and bytes on every strategy, and the
// page of a plan.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <iterator>
#include <set>
#include <sstream>

#include "tests/support/device.h"
#include "tests/tools/sessions.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/parse.h"
#include "tools/config/sharding_options.h"
#include "tools/plan/plan.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::Findings;
using test::TrainedSession;

Config parse(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  return parse_config(yaml, "run.yaml", overrides);
}

std::string error_of(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  return test::error_of([&] { parse(yaml, overrides); });
}

/// A group of a file, as its third line.
std::string group_error(const std::string& group) {
  return error_of("optimizer:\n  groups:\n    - " + group + "\n");
}

Config tiny(const std::string& preset, std::vector<OptimizerGroupConfig> groups) {
  Config config;
  config.model = test::tiny_model(preset, 8);
  config.model.vocab_size = 19;
  config.data = {.batch_size = 4, .sequence_length = 8};
  config.optimizer.learning_rate = 1e-2;
  config.optimizer.clip_norm = 0.1;
  config.optimizer.groups = std::move(groups);
  return config;
}

/// The match of each parameter's group, with "+" where it decays.
std::map<std::string, std::string> groups_in(const Config& config) {
  const auto model = make_model(resolve(config));
  const ParameterGroups groups = parameter_groups(config.optimizer, *model);
  std::map<std::string, std::string> found;
  for (const Parameter& parameter : parameters_of(*model)) {
    found[parameter.name()] = groups.of(parameter).match + (groups.decays(parameter) ? "+" : "");
  }
  return found;
}

std::string model_error(std::vector<OptimizerGroupConfig> groups) {
  return test::error_of([&] { check_model_keys(resolve(tiny("gpt2-mini", std::move(groups)))); });
}

}  // namespace

TEST_CASE("groups: a list of the file, and its text, give the same configuration") {
  const Config config = parse(R"(
optimizer:
  learning_rate: 0.002
  groups:
    - match: tables,*.ln_f.*
      learning_rate_factor: 5e-1
      beta2: 0.99
    - {match: "*.attn.?_proj.*", name: sgd}
)");
  const std::string text =
      "[{match: \"tables, *.ln_f.*\", beta2: 0.99, learning_rate_factor: 0.5}, "
      "{match: \"*.attn.?_proj.*\", name: sgd}]";
  std::vector<OptimizerGroupConfig> groups = config.optimizer.groups;
  CHECK(optimizer_groups_key(groups).text() == text);
  CHECK(parse("", {"optimizer.groups=" + text}).optimizer.groups == groups);
  CHECK(parse(to_yaml(config)).optimizer.groups == groups);
  CHECK(parse("optimizer: {groups: }").optimizer.groups.empty());
  CHECK(parse("optimizer: {groups: []}").optimizer.groups.empty());
  // Keys that follow, and overrides, count for the groups too.
  Config later = config;
  set_keys(later, std::vector<std::string>{"optimizer.learning_rate=0.1"}, "command line");
  const std::vector<OptimizerGroup> all = optimizer_groups(later.optimizer);
  REQUIRE(all.size() == 4);
  CHECK(all[0].settings.learning_rate == 0.05);
  CHECK(all[0].settings.beta2 == 0.99);
  CHECK(all[1].settings.name == OptimizerKind::sgd);
  CHECK(all[1].settings.learning_rate == 0.1);
  CHECK(all[2].match == "vectors");
  CHECK(all[3].settings.beta2 == later.optimizer.beta2);
}

TEST_CASE("groups: a mistake is one line with its place") {
  CHECK(group_error("{match: tables, lr: 1}") ==
        "run.yaml:3: optimizer.groups: unknown key 'lr'; it is called 'optimizer.learning_rate' "
        "here");
  CHECK(group_error("{match: tables, betta1: 1}") ==
        "run.yaml:3: optimizer.groups: unknown key 'betta1'; did you mean 'beta1'?");
  CHECK(group_error("match: tables\n      beta1: 2") ==
        "run.yaml:4: optimizer.groups: beta1: expected a number >= 0 and < 1, got \"2\"");
  CHECK_THAT(group_error("{match: tables, clip_norm: 1}"),
             Contains("may not have clip_norm: the norm that is clipped is that of all"));
  CHECK_THAT(group_error("{match: tables, master_dtype: bf16}"), Contains("same buffers"));
  CHECK_THAT(group_error("{match: tables, groups: []}"), Contains("a group has no groups"));
  CHECK_THAT(group_error("{beta1: 0.5}"), Contains("run.yaml:3:") && Contains("no key 'match'"));
  CHECK_THAT(group_error("{match: tables, beta1: 0.5, beta1: 0.5}"), Contains("occurs twice"));
  CHECK_THAT(group_error("{match: a, match: b}"), Contains("occurs twice"));
  CHECK_THAT(group_error("{match: tables, beta1: [1]}"), Contains("beta1: expected one value"));
  CHECK_THAT(group_error("{match: 'a b'}"), Contains("match: expected names of parameters"));
  CHECK_THAT(group_error("{match: ''}"), Contains("match: expected names of parameters"));
  CHECK_THAT(group_error("{match: a, learning_rate: 1, learning_rate_factor: 1}"),
             Contains("are both set"));
  CHECK_THAT(group_error("{match: a, frozen: true, beta1: 0}"), Contains("the group is frozen"));
  CHECK_THAT(group_error("tables"), Contains("run.yaml:3:") && Contains("expected a group such"));
  CHECK_THAT(error_of("optimizer: {groups: 3}"), Contains("expected a list of groups"));
  CHECK_THAT(error_of("optimizer: {groups: {match: a}}"),
             Contains("expected one value, got a map"));
  CHECK_THAT(error_of("", {"optimizer.groups=[{match: a, lr: 1}]"}),
             Contains("command line: optimizer.groups: character 13: unknown key 'lr'"));
  CHECK_THAT(error_of("optimizer: {beta1: [1]}"), Contains("expected one value, got a list"));
}

TEST_CASE("groups: the first match has a parameter, and the default groups the rest") {
  const auto gpt2 =
      groups_in(tiny("gpt2-mini", {{.match = "*.h.1.*"},
                                   {.match = "tables, *.c_fc.weight"},
                                   {.match = "*.ln_f.*", .keys = {{"weight_decay", "1"}}}}));
  CHECK(gpt2.at("transformer.h.1.mlp.c_fc.weight") == "*.h.1.*+");
  CHECK(gpt2.at("transformer.h.1.mlp.c_fc.bias") == "*.h.1.*");
  CHECK(gpt2.at("transformer.wte.weight") == "tables, *.c_fc.weight+");
  CHECK(gpt2.at("transformer.wpe.weight") == "tables, *.c_fc.weight+");
  CHECK(gpt2.at("transformer.h.0.mlp.c_fc.weight") == "tables, *.c_fc.weight+");
  CHECK(gpt2.at("transformer.ln_f.bias") == "*.ln_f.*+");
  CHECK(gpt2.at("transformer.h.0.ln_1.weight") == "vectors");
  CHECK(gpt2.at("transformer.h.0.attn.c_attn.weight") == "others+");
  const auto tied = groups_in(tiny("gpt2-mini", {{.match = "tables"}}));
  CHECK(std::count_if(tied.begin(), tied.end(),
                      [](const auto& one) { return one.second == "tables+"; }) == 2);
  const auto llama = groups_in(tiny("llama3-8b", {{.match = "tables"}, {.match = "matrices"}}));
  CHECK(llama.at("model.embed_tokens.weight") == "tables+");
  CHECK(llama.at("lm_head.weight") == "tables+");
  CHECK(llama.at("model.norm.weight") == "vectors");
  CHECK(llama.at("model.layers.0.mlp.down_proj.weight") == "matrices+");
  const auto moe = groups_in(tiny("qwen3-moe-mini", {{.match = "matrices"}}));
  CHECK(std::count_if(moe.begin(), moe.end(), [](const auto& one) {
          return one.first.find("experts") != std::string::npos && one.second == "matrices+";
        }) > 0);
}

TEST_CASE("groups: a pattern without a parameter is an error that names the nearest") {
  CHECK_THAT(
      model_error({{.match = "tables"}, {.match = "*.ln_f.*, transformer.wpe.wight"}}),
      Contains("optimizer.groups: group 2: 'transformer.wpe.wight' matches no parameter; did "
               "you mean 'transformer.wpe.weight'?"));
  CHECK_THAT(model_error({{.match = "*.atn.*"}}), Contains("did you mean '*.attn.*'?"));
  CHECK_THAT(model_error({{.match = "zzz"}}), Contains("names are like 'transformer."));
  CHECK_THAT(model_error({{.match = "table"}}), Contains("did you mean 'tables'?"));
  CHECK_THAT(model_error({{.match = "others"}}), Contains("'others' matches no parameter"));
  CHECK_THAT(model_error({{.match = "*"}, {.match = "*.bias"}}),
             Contains("group 2: groups before it have all parameters that '*.bias' matches"));
  CHECK_THAT(model_error({{.match = "*", .keys = {{"frozen", "true"}}}}),
             Contains("none is left to train"));
  Config rounds = tiny("gpt2-mini", {{.match = "tables", .keys = {{"name", "sgd"}}}});
  rounds.optimizer.state_dtype = DType::bf16;
  CHECK_THAT(test::error_of([&] { resolve(rounds); }), Contains("sgd keeps f32"));
  rounds.optimizer.groups[0].keys["state_dtype"] = "f32";
  CHECK_NOTHROW(resolve(rounds));
}

TEST_CASE("groups: every strategy has ddp's bits and the predicted bytes") {
  const std::vector<OptimizerGroupConfig> groups = {
      {.match = "*.ln_2.*", .keys = {{"frozen", "true"}}},
      {.match = "*.h.0.*",
       .keys = {{"name", "sgd"}, {"momentum", "0.9"}, {"learning_rate", "0.1"}}},
      {.match = "vectors", .keys = {{"name", "sgd"}, {"schedule", "constant"}}},
      {.match = "tables", .keys = {{"state_dtype", "bf16"}, {"beta1", "0.5"}}}};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Config config = tiny("gpt2-mini", groups);
    config.runtime.compute_dtype = dtype;
    Findings findings;
    const auto run = [&](const std::string& strategy, int ranks) {
      return test::train_session(variant_of(config, strategy), ranks,
                                 {.count = 3, .device = test::device(), .findings = &findings});
    };
    for (const int ranks : {2, 3}) {
      config.data.batch_size = 2 * ranks;
      const TrainedSession ddp = run("ddp", ranks);
      for (const std::string& strategy : strategy_variants()) {
        findings.expect(run(strategy, ranks) == ddp, fmt::format("{} on {}", strategy, ranks));
      }
    }
    CHECK(findings.wrong() == std::vector<std::string>());
  }
}

TEST_CASE("groups: listed groups that change nothing have the bits of none") {
  Config config = tiny("gpt2-mini", {});
  const TrainedSession without = test::train_session(config, 1, {.count = 3});
  config.optimizer.groups = {{.match = "tables", .keys = {{"beta2", "0.95"}}},
                             {.match = "*.h.0.*", .keys = {{"learning_rate_factor", "1"}}}};
  CHECK((test::train_session(config, 1, {.count = 3}) == without));
  config.optimizer.groups = {{.match = "vectors", .keys = {{"weight_decay", "0.1"}}}};
  CHECK((test::train_session(config, 1, {.count = 3}).weights != without.weights));
}

TEST_CASE("groups: the plan's page has a row for each") {
  Config config = tiny("gpt2-mini", {{.match = "*.h.0.*", .keys = {{"name", "sgd"}}},
                                     {.match = "*.ln_f.*", .keys = {{"frozen", "true"}}}});
  config.optimizer.learning_rate = 0.25;
  config.sharding.strategy = StrategyKind::zero1;
  const std::string page = plan(config, {.ranks = 2});
  std::set<std::string> rows;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream stream(line);
    const std::vector<std::string> words(std::istream_iterator<std::string>(stream), {});
    rows.insert(fmt::format("{}", fmt::join(words, " ")));
  }
  // 2 layers of width 16: 4 norm vectors, biases of 3w, w, 4w, w, matrices of 12 w^2; tables of 19 and 8.
  CHECK(rows.contains("*.h.0.* sgd 12 3280 0 0.25 0.1"));
  CHECK(rows.contains("*.ln_f.* frozen 2 32 0 - -"));
  CHECK(rows.contains("vectors adamw 8 208 1664 0.25 0"));
  CHECK(rows.contains("others adamw 6 3504 28032 0.25 0.1"));
}

}  // namespace tessera
