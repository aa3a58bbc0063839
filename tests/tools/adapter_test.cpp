// Training adapters: the same bits by every strategy and number of ranks, and the bytes of the plan.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "kernels/nf4/op.h"
#include "tests/support/error_of.h"
#include "tests/support/paths.h"
#include "tests/tools/sessions.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/parse.h"
#include "tools/config/sharding_options.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::error_of;
using test::Findings;
using test::Steps;
using test::train_session;
using test::TrainedSession;

Config tiny_adapter(const std::string& preset) {
  Config config;
  config.model = test::tiny_model(preset);
  config.model.vocab_size = 37;
  config.adapter.rank = 3;
  config.adapter.alpha = 5.0;
  config.data = {.batch_size = 4, .sequence_length = 24};
  config.optimizer.learning_rate = 1e-2;
  return config;
}

bool is_factor(const std::string& name) {
  return name.find(".lora_") != name.npos;
}

}  // namespace

TEST_CASE("adapters: every strategy on 1, 2 and 4 ranks has the bits of one rank, and its bytes",
          "[cpu]") {
  const std::string preset = GENERATE("gpt2-mini", "llama3-mini", "qwen3-moe-mini");
  const DType dtype = GENERATE(DType::f32, DType::bf16);
  Config config = tiny_adapter(preset);
  config.runtime.compute_dtype = dtype;
  config.adapter.dropout = 0.25;
  config.train.elastic = 4;
  const TrainedSession expected = train_session(config, 1, {.count = 3});
  CHECK(expected.losses[2] != expected.losses[0]);
  for (const char* strategy : {"ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp_flat", "hsdp"}) {
    for (const int ranks : {1, 2, 4}) {
      if (ranks == 1 && std::string(strategy) == "hsdp") continue;
      CAPTURE(preset, name_of(dtype), strategy, ranks);
      const Config here = variant_of(config, strategy);
      Findings findings;
      CHECK(train_session(here, ranks, {.count = 3, .findings = &findings}) == expected);
      for (const std::string& wrong : findings.wrong()) FAIL_CHECK(wrong);
    }
  }
}

TEST_CASE("adapters: recomputation, pipelines, expert ranks and a grid keep the bits", "[cpu]") {
  Config config = tiny_adapter("qwen3-moe-mini");
  if (GENERATE(false, true)) config.adapter.base = AdapterBase::nf4;
  config.data.accumulation_steps = 2;
  const TrainedSession expected = train_session(config, 1, {.count = 2});
  const auto check_equal = [&](const Config& here, int ranks) {
    Findings findings;
    CHECK(train_session(here, ranks, {.count = 2, .findings = &findings}) == expected);
    for (const std::string& wrong : findings.wrong()) FAIL_CHECK(wrong);
  };
  SECTION("recomputation") {
    config.sharding.activation_checkpointing = {.first = 0, .every = 1};
    check_equal(config, 1);
  }
  SECTION("a pipeline") {
    config = variant_of(config, "fsdp");
    config.sharding.pipeline_parallel = 2;
    config.sharding.pipeline_schedule =
        GENERATE(PipelineSchedule::gpipe, PipelineSchedule::one_forward_one_backward);
    check_equal(config, 2);
  }
  SECTION("expert ranks") {
    config = variant_of(config, GENERATE("ddp", "zero3", "fsdp"));
    config.data.accumulation_steps = 1;
    config.sharding.expert_parallel = 2;
    check_equal(config, 2);
  }
}

TEST_CASE("adapters: on a packed base every strategy has the bits of one rank, and its bytes",
          "[cpu]") {
  const std::string preset = GENERATE("gpt2-mini", "llama3-mini", "qwen3-moe-mini");
  Config config = tiny_adapter(preset);
  config.adapter.base = AdapterBase::nf4;
  config.runtime.compute_dtype = GENERATE(DType::f32, DType::bf16);
  config.train.elastic = 4;
  const TrainedSession expected = train_session(config, 1, {.count = 2});
  CHECK(expected.losses[1] != expected.losses[0]);
  for (const auto& [strategy, ranks] : {std::pair{"ddp", 2},
                                        {"zero1", 2},
                                        {"zero2", 4},
                                        {"zero3", 1},
                                        {"zero3", 4},
                                        {"fsdp", 2},
                                        {"fsdp_flat", 4},
                                        {"hsdp", 4}}) {
    CAPTURE(preset, strategy, ranks);
    Findings findings;
    CHECK(train_session(variant_of(config, strategy), ranks, {.count = 2, .findings = &findings}) ==
          expected);
    for (const std::string& wrong : findings.wrong()) FAIL_CHECK(wrong);
  }
}

TEST_CASE("adapters: a packed base is that of all adaptable weights, held and gathered in 4 bits",
          "[cpu]") {
  Config config = tiny_adapter("llama3-mini");
  config.adapter.targets = "q_proj";
  config = variant_of(config, "fsdp");
  const auto plan_of = [](const Config& of) {
    const ResolvedConfig run = resolve(of);
    return make_plan(make_model(run)->units(), run.sharding, {.ranks = 2});
  };
  const auto bytes_of = [](const Plan& plan, const auto& includes) {
    std::int64_t bytes = 0;
    for (const GroupPlan& group : plan.groups) {
      if (!includes(group)) continue;
      for (int shard = 0; shard < group.shards; ++shard) {
        bytes += group.partition.owned_elements(shard);
      }
    }
    return bytes;
  };
  const auto is_packed = [](const GroupPlan& group) {
    return group.placement.compute_dtype == DType::u8;
  };
  CHECK(bytes_of(plan_of(config), is_packed) == 0);
  config.adapter.base = AdapterBase::nf4;
  const TransformerShape shape = shape_of(resolve(config).model);
  const std::int64_t channels = shape.heads * shape.head_size;
  const std::int64_t keys = shape.kv_heads * shape.head_size;
  const auto bytes_of_matrix = [](std::int64_t rows, std::int64_t columns) {
    return nf4_packed_shape({rows, columns}).numel();
  };
  const std::int64_t of_block =
      bytes_of_matrix(channels + 2 * keys + 2 * shape.mlp_width, shape.width) +
      bytes_of_matrix(shape.width, channels) + bytes_of_matrix(shape.width, shape.mlp_width);
  CHECK(bytes_of(plan_of(config), is_packed) == 2 * of_block);
}

TEST_CASE("adapters: context ranks with a grid have the bits of one rank", "[cpu]") {
  Config config = tiny_adapter(GENERATE("gpt2-mini", "llama3-mini", "qwen3-moe-mini"));
  config.data.sequence_length = 16;
  config.adapter.dropout = 0.25;
  config = variant_of(config, "fsdp");
  config.sharding.grid = 4;
  const TrainedSession expected = train_session(config, 1);
  config.sharding.context_parallel = GENERATE(2, 4);
  Findings findings;
  CHECK(train_session(config, static_cast<int>(config.sharding.context_parallel),
                      {.findings = &findings}) == expected);
  for (const std::string& wrong : findings.wrong()) FAIL_CHECK(wrong);
}

TEST_CASE("adapters: training changes the factors alone, and the targets choose them", "[cpu]") {
  Config config = tiny_adapter("llama3-mini");
  config.adapter.targets = "q_proj,down_proj";
  const auto before = train_session(config, 1, {.count = 0}).weights;
  const auto after = train_session(config, 1, {.count = 3}).weights;
  REQUIRE(before.size() == after.size());
  int factors = 0;
  for (const auto& [name, values] : before) {
    CAPTURE(name);
    CHECK((values != after.at(name)) == is_factor(name));
    factors += is_factor(name) ? 1 : 0;
  }
  CHECK(factors == 2 * 2 * 2);  // A and B of two layers in two blocks
}

TEST_CASE("adapters: keys that contradict them are refused in one line, with their places") {
  const auto refusal = [](const std::vector<std::string>& settings) {
    return error_of([&] {
      const Config config =
          parse_config("model:\n  preset: qwen3-moe-mini\n", "run.yaml", settings);
      make_model(resolve(config));
    });
  };
  CHECK(refusal({"adapter.rank=4"}) == "no error");
  CHECK_THAT(refusal({"adapter.rank=4", "adapter.targets=q_prj"}),
             Contains("command line: adapter.targets: 'q_prj' matches no linear layer") &&
                 Contains("did you mean 'q_proj'?"));
  CHECK_THAT(refusal({"adapter.targets=q_proj"}), Contains("adapter.rank is 0: set the rank"));
  CHECK_THAT(refusal({"adapter.rank=4", "model.frozen=model.embed_tokens"}),
             Contains("command line: model.frozen is 'model.embed_tokens', but"));
  CHECK_THAT(refusal({"adapter.rank=4", "sharding.tensor_parallel=2"}),
             Contains("sharding.tensor_parallel is 2, but adapters are not cut"));
  CHECK_THAT(refusal({"adapter.rank=4", "moe.balance=bias"}), Contains("moe.balance is bias, but"));
  CHECK_THAT(refusal({"adapter.path=" TESSERA_SOURCE_DIR "/tests/golden/adapters/llama",
                      "adapter.rank=4"}),
             Contains("adapter.rank is another than that of the adapter in"));
  CHECK(refusal({"adapter.rank=4", "adapter.base=nf4"}) == "no error");
  CHECK(refusal({"adapter.rank=4", "adapter.base=bf16", "runtime.compute_dtype=bf16"}) ==
        "no error");
  CHECK_THAT(refusal({"adapter.rank=4", "adapter.base=bf16"}),
             Contains("adapter.base is bf16, but runtime.compute_dtype is f32"));
  CHECK_THAT(refusal({"adapter.base=nf4"}),
             Contains("adapter.base is nf4, but adapter.rank is 0: set the rank"));
  CHECK_THAT(refusal({"adapter.rank=4", "adapter.base=fp4"}),
             Contains("expected auto or one of bf16, nf4, got \"fp4\""));
  CHECK_THAT(refusal({"lora_r=4"}), Contains("it is called 'adapter.rank' here"));
}

}  // namespace tessera
