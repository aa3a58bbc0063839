// The search of strategies, meshes and cuts: its candidates, and those that it leaves out.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/check.h"
#include "tests/tools/six_layers.h"
#include "tools/config/sharding_options.h"
#include "tools/plan/figures.h"
#include "tools/plan/search.h"
#include "tools/train/resolve.h"

namespace tessera {
namespace {

template <typename Condition>
bool has(const std::vector<Candidate>& all, const Condition& condition) {
  return std::any_of(all.begin(), all.end(), condition);
}

bool has_key(const Candidate& one, const std::string& key) {
  return std::find(one.keys.begin(), one.keys.end(), key) != one.keys.end();
}

/// Every mesh of four ranks of one node with every schedule, and its least time.
std::vector<Cuts> all_cuts_of_four() {
  std::vector<Cuts> all;
  for (const int tensor : {1, 2, 4}) {
    for (const int pipeline : {1, 2, 4}) {
      if (tensor * pipeline > 4) continue;
      if (pipeline == 1) {
        all.push_back({.tensor = tensor});
        continue;
      }
      for (const PipelineSchedule schedule :
           {PipelineSchedule::gpipe, PipelineSchedule::one_forward_one_backward,
            PipelineSchedule::interleaved, PipelineSchedule::zero_bubble}) {
        const int chunks = schedule == PipelineSchedule::interleaved ? 2 : 1;
        all.push_back(
            {.tensor = tensor, .pipeline = pipeline, .schedule = schedule, .chunks = chunks});
      }
    }
  }
  return all;
}

/// A step of the configuration with these cuts under zero1, or ddp on one data rank.
double seconds_with(Config config, const Cuts& cuts, const PlanOptions& options) {
  config.data.accumulation_steps *= cuts.ranks_of_a_copy();
  config.sharding.reduce = ReduceAfter::last_micro_batch;
  cuts.apply(config.sharding);
  const bool one_copy = cuts.ranks_of_a_copy() == options.ranks;
  return step_figures(variant_of(config, one_copy ? "ddp" : "zero1"), options, {})
      .time->timeline.seconds;
}

TEST_CASE("least time: no step is faster, under any cut and schedule") {
  const Config config = test::six_layers();
  const ResolvedConfig run = resolve(config);
  const auto model = make_model(run);
  const LeastTime least(model->units(), model->shape(), /*rows=*/1, 32, "");
  // Messages take no time, and so the bound is close.
  const PlanOptions options{.ranks = 4, .machine = test::gpus_with_links(1e18)};
  for (const Cuts& cuts : all_cuts_of_four()) {
    const double bound = least.seconds(cuts, 4 * cuts.ranks_of_a_copy(), /*recomputes=*/false,
                                       options.machine->compute.front());
    const double seconds = seconds_with(config, cuts, options);
    INFO(cuts.tensor << " x " << cuts.pipeline << " " << enum_name(cuts.schedule));
    CHECK(bound <= seconds * (1.0 + 1e-9));
    CHECK(bound > 0.8 * seconds);
  }
}

TEST_CASE("search: no mesh or schedule that it leaves out is faster") {
  for (const double bandwidth : {1e4, 1e5, 1e6}) {
    const Config config = test::six_layers();
    const PlanOptions options{.ranks = 4, .machine = test::gpus_with_links(bandwidth)};
    const std::vector<Candidate> found = search_strategies(config, options, {});
    INFO(bandwidth);
    for (const Cuts& cuts : all_cuts_of_four()) {
      CHECK(found.front().step_seconds <= seconds_with(config, cuts, options) * (1.0 + 1e-9));
    }
  }
}

TEST_CASE("search: candidates are sorted, train on the same batch, and are what their keys say") {
  const Config config = test::six_layers();
  const PlanOptions options{.ranks = 4, .machine = test::gpus_with_links(1e4)};
  const std::vector<Candidate> all = search_strategies(config, options, {});
  CHECK(has(all, [](const Candidate& one) { return one.cuts.tensor == 4; }));
  CHECK(has(all, [](const Candidate& one) { return one.cuts.pipeline == 2; }));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Candidate& one = all[i];
    if (i > 0) CHECK(all[i - 1].step_seconds <= one.step_seconds);
    CHECK(one.cuts.context == 1);  // the batch has rows for all ranks
    const int batch_ranks = 4 / one.cuts.ranks_of_a_copy();
    if (one.cuts.any()) {
      CHECK(has_key(one, fmt::format("data.accumulation_steps={}", 16 / batch_ranks)));
    }
    for (const auto& [name, size] : {std::pair("tensor_parallel", one.cuts.tensor),
                                     std::pair("pipeline_parallel", one.cuts.pipeline)}) {
      CHECK(has_key(one, fmt::format("sharding.{}={}", name, size)) == (size > 1));
    }
  }
  CHECK_THAT(search_table(all), Catch::Contains("sharding.tensor_parallel=4 "));
  const auto json = nlohmann::json::parse(search_json(all))["candidates"];
  REQUIRE(json.size() == all.size());
  CHECK(json[0]["step_seconds"].get<double>() == all[0].step_seconds);
  CHECK(json[0]["tensor"].get<int>() == all[0].cuts.tensor);
}

TEST_CASE("search: a pipeline whose bubble costs more than its messages save is left out") {
  // Messages take no time, so no step is faster than that of four ranks with the same work each.
  const PlanOptions options{.ranks = 4, .machine = test::gpus_with_links(1e18)};
  const std::vector<Candidate> all = search_strategies(test::six_layers(), options, {});
  CHECK(!all.empty());
  CHECK(!has(all, [](const Candidate& one) { return one.cuts.pipeline > 1; }));
}

TEST_CASE("search: zero_bubble is the fastest where the gradients of weights fill the bubble") {
  Config config = test::six_layers();
  config.model.vocab_size = 2;  // the head costs next to nothing
  config.data = {.batch_size = 6, .sequence_length = 32, .accumulation_steps = 1};
  config.sharding.pipeline_stages = "layers.3";
  // Two rows for each of three data ranks would be sent too slowly.
  const PlanOptions options{.ranks = 2, .machine = test::gpus_with_links(2e3)};
  const std::vector<Candidate> all = search_strategies(config, options, {});
  CHECK(all.front().cuts.schedule == PipelineSchedule::zero_bubble);
  CHECK(has_key(all.front(), "sharding.pipeline_schedule=zero_bubble"));
  CHECK(has_key(all.front(), "sharding.reduce=last_micro_batch"));
}

/// Six layers with tied ends. Their gradients are added after each micro-batch, so zero_bubble does not suit.
Config tied_ends(std::int64_t rows) {
  Config config;
  config.model = {.preset = "gpt2-mini", .layers = 6, .heads = 4, .width = 32, .context = 32};
  config.model.vocab_size = 96;
  config.data = {.batch_size = rows, .sequence_length = 32};
  return config;
}

TEST_CASE("search: interleaved is the fastest pipeline where zero_bubble does not suit") {
  const PlanOptions options{.ranks = 2, .machine = test::gpus_with_links(1e4)};
  const std::vector<Candidate> all = search_strategies(tied_ends(8), options, {});
  const auto first = std::find_if(all.begin(), all.end(),
                                  [](const Candidate& one) { return one.cuts.pipeline == 2; });
  REQUIRE(first != all.end());
  CHECK(first->cuts.schedule == PipelineSchedule::interleaved);
  CHECK(first->cuts.chunks > 1);
  CHECK(has_key(*first, fmt::format("sharding.pipeline_chunks={}", first->cuts.chunks)));
}

TEST_CASE("search: gpipe and 1f1b are left where stages get no several chunks and ends are tied") {
  // Four stages: two batch ranks could not share out five rows, and interleaved has no five micro-batches.
  const PlanOptions options{.ranks = 4, .machine = test::gpus_with_links(1e4)};
  const std::vector<Candidate> all = search_strategies(tied_ends(5), options, {});
  for (const PipelineSchedule schedule :
       {PipelineSchedule::gpipe, PipelineSchedule::one_forward_one_backward}) {
    INFO(enum_name(schedule));
    CHECK(has(all, [&](const Candidate& one) {
      return one.cuts.pipeline == 4 && one.cuts.schedule == schedule;
    }));
  }
  CHECK(!has(all, [](const Candidate& one) {
    return one.cuts.schedule == PipelineSchedule::interleaved ||
           one.cuts.schedule == PipelineSchedule::zero_bubble;
  }));
}

TEST_CASE("search: expert ranks suit a mixture whose weights are more bytes than its rows") {
  Config config;
  config.model = {.preset = "qwen3-moe-mini", .layers = 2, .heads = 4, .width = 32};
  config.model.kv_heads = 4;
  config.model.vocab_size = 96;
  config.model.experts = 8;
  config.model.expert_width = 256;
  config.data = {.batch_size = 4, .sequence_length = 8};
  const PlanOptions options{.ranks = 4, .machine = test::gpus_with_links(1e5)};
  const std::vector<Candidate> all = search_strategies(config, options, {});
  const auto only_experts = [](int size) {
    return [size](const Candidate& one) { return one.cuts == Cuts{.expert = size}; };
  };
  for (const int size : {2, 4}) {
    const auto found = std::find_if(all.begin(), all.end(), only_experts(size));
    INFO(size);
    REQUIRE(found != all.end());
    CHECK(has_key(*found, fmt::format("sharding.expert_parallel={}", size)));
    CHECK(found->keys.size() == 1);
  }
  const auto fewest = std::find_if(all.begin(), all.end(), only_experts(1));
  CHECK(std::find_if(all.begin(), all.end(), only_experts(4)) < fewest);
}

TEST_CASE("search: next to cuts fsdp and hsdp are for memory that zero1 does not fit") {
  const PlanOptions options{.ranks = 8, .nodes = 2, .machine = test::gpus_with_links(1e5)};
  Config config = test::six_layers();
  config.data.batch_size = 32;
  config.model.layers = 24;  // slots have few of them
  const auto strategies_in = [&](std::optional<std::int64_t> bytes) {
    std::vector<Candidate> found = search_strategies(config, options, bytes);
    std::erase_if(found, [](const Candidate& one) { return !(one.cuts == Cuts{.tensor = 2}); });
    return found;
  };
  const std::vector<Candidate> all = strategies_in({});
  REQUIRE(all.size() == 1);
  CHECK(all.front().strategy == "zero1");
  std::set<std::string> others;
  for (const Candidate& one : strategies_in(all.front().peak - 1)) {
    others.insert(one.strategy);
    // Two tensor ranks and two shards are a node.
    if (one.strategy == "hsdp") CHECK(one.shard_size == 2);
  }
  CHECK(others == std::set<std::string>{"fsdp", "hsdp"});
}

TEST_CASE("search: gradients of several micro-batches are reduced once") {
  const PlanOptions options{.ranks = 4, .machine = test::gpus_with_links(1e5)};
  const std::vector<Candidate> all = search_strategies(test::six_layers(), options, {});
  for (const Candidate& one : all) CHECK(has_key(one, "sharding.reduce=last_micro_batch"));
  const auto fsdp = [](const std::vector<Candidate>& found) {
    return *std::find_if(found.begin(), found.end(), [](const Candidate& one) {
      return one.strategy == "fsdp" && !one.cuts.any();
    });
  };
  // Whole gradients do not fit, and their parts do.
  const Candidate whole = fsdp(all);
  const Candidate parts = fsdp(search_strategies(test::six_layers(), options, whole.peak - 1));
  CHECK(parts.keys.empty());
  CHECK(parts.peak < whole.peak);
}

TEST_CASE("search: blocks are computed again where nothing else fits") {
  Config config = test::six_layers();
  config.data = {.batch_size = 2, .sequence_length = 512};
  const PlanOptions options{.ranks = 2, .machine = test::gpus_with_links(1e6)};
  const auto recomputes = [](const Candidate& one) {
    return has_key(one, "sharding.activation_checkpointing=full");
  };
  const std::vector<Candidate> all = search_strategies(config, options, {});
  CHECK(!has(all, recomputes));
  std::int64_t least = all.front().peak;
  for (const Candidate& one : all) {
    if (!one.cuts.any()) least = std::min(least, one.peak);
  }
  const std::vector<Candidate> small = search_strategies(config, options, least - 1);
  CHECK(has(small, [&](const Candidate& one) { return !one.cuts.any() && recomputes(one); }));
  for (const Candidate& one : small) CHECK(one.peak < least);
}

TEST_CASE("search: context ranks are for batches without a row for every rank") {
  Config config = test::six_layers();
  config.data = {.batch_size = 1, .sequence_length = 32};
  const PlanOptions options{.ranks = 2, .machine = test::gpus_with_links(1e6)};
  const std::vector<Candidate> all = search_strategies(config, options, {});
  CHECK(has(all, [](const Candidate& one) { return one.cuts.context == 2; }));
  // Two ranks could not share out the batch.
  CHECK(!has(all, [](const Candidate& one) { return !one.cuts.any(); }));
}

TEST_CASE("search: tensor ranks share a node") {
  const PlanOptions options{.ranks = 4, .nodes = 2, .machine = test::gpus_with_links(1e6)};
  for (const Candidate& one : search_strategies(test::six_layers(), options, {})) {
    CHECK(one.cuts.tensor <= 2);
  }
}

TEST_CASE("search: a batch that no ranks can share out is named") {
  Config config = test::six_layers();
  config.model.layers = 1;
  config.model.heads = config.model.kv_heads = 1;
  config.data = {.batch_size = 3, .sequence_length = 33};
  const PlanOptions options{.ranks = 4, .nodes = 4, .machine = test::gpus_with_links(1e6)};
  CHECK_THROWS_WITH(search_strategies(config, options, {}),
                    Catch::Contains("data.batch_size 3 is not a multiple of"));
}

}  // namespace
}  // namespace tessera
