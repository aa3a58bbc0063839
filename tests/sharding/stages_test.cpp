// The stages of a pipeline, and plans with stages.
#include "sharding/plan/stages.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "sharding/plan/footprint.h"
#include "sharding/plan/plan.h"
#include "sharding/plan/traffic.h"
#include "tests/support/error_of.h"

namespace tessera {
namespace {

using Catch::Contains;
using Ranges = std::vector<PartRange>;

Parameter matrix(const std::string& name, std::int64_t rows) {
  return Parameter(name, {rows, 10}, Initializer::zeros());
}

/// An embedding of 40 x 10, blocks of these numbers of rows, and a head of 40 x 10, tied or not.
Units model_of(const std::vector<std::int64_t>& blocks, bool tied) {
  Units units;
  units.push_back(std::make_unique<Unit>(
      "embedding", std::vector{matrix("table", 40), matrix("places", 20)}, tied));
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const std::string name = "h." + std::to_string(i);
    units.push_back(std::make_unique<Unit>(name, std::vector{matrix(name + ".w", blocks[i])}));
  }
  if (!tied) units.push_back(std::make_unique<Unit>("head", std::vector{matrix("head.w", 40)}));
  return units;
}

}  // namespace

TEST_CASE("stages: the dearest is as cheap as can be, and an embedding costs nothing") {
  const Units units = model_of({20, 20, 20, 20}, /*tied=*/false);
  CHECK(part_costs(units, 0) == std::vector<std::int64_t>{0, 200, 200, 200, 200, 400});
  CHECK(cut_stages(units, "", 1, 0) == Ranges{{0, 6}});
  CHECK(cut_stages(units, "", 2, 0) == Ranges{{0, 4}, {4, 6}});
  CHECK(cut_stages(units, "", 3, 0) == Ranges{{0, 3}, {3, 5}, {5, 6}});
  CHECK(cut_stages(units, "", 6, 0) == Ranges{{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}});
}

TEST_CASE("stages: tied ends are two parts, and a token is multiplied by the table alone") {
  const Units units = model_of({20, 20, 20, 20}, /*tied=*/true);
  CHECK(part_count(units) == 6);
  CHECK(part_costs(units, 0) == std::vector<std::int64_t>{0, 200, 200, 200, 200, 400});
  CHECK(cut_stages(units, "h.1,head", 3, 0) == Ranges{{0, 2}, {2, 5}, {5, 6}});
}

TEST_CASE("stages: a layer costs the experts that a token takes") {
  Units units = model_of({20}, false);
  const Parameter experts("experts", {8, 3, 10}, Initializer::zeros());
  experts.set_stacked();
  units.insert(units.end() - 1, std::make_unique<Unit>("h.1", std::vector{experts}));
  CHECK(part_costs(units, 2) == std::vector<std::int64_t>{0, 200, 60, 400});
  CHECK(part_costs(units, 0) == std::vector<std::int64_t>{0, 200, 240, 400});
}

TEST_CASE("stages: a pipeline that cannot be is refused") {
  const Units units = model_of({20, 20}, false);
  const auto refusal = [&](const std::string& rule, int count) {
    return test::error_of([&] { cut_stages(units, rule, count, 0); });
  };
  CHECK_THAT(refusal("", 5), Contains("5 stages are more than the model's 4 parts"));
  CHECK_THAT(refusal("h.7", 2), Contains("'h.7' is no unit of this model, which has 'embedding'"));
  CHECK_THAT(refusal("h.0,h.1", 2), Contains("names 3 stages with the first"));
  CHECK(refusal("h.0", 2) == "no error");
}

TEST_CASE("a plan has groups for each stage, and no bucket in two of them") {
  const Units units = model_of({20, 20, 20, 20}, false);
  const Plan plan = make_plan(units,
                              {.strategy = StrategyKind::fsdp,
                               .pipeline_parallel = 2,
                               .buckets = "100000",
                               .micro_batches = 3,
                               .activations = 3 * 2 * 8},
                              {.ranks = 4, .device = {}});
  REQUIRE(plan.groups.size() == 2);
  std::vector<std::string> names;
  for (const GroupPlan& group : plan.groups) {
    for (const BucketLayout& bucket : group.buckets()) names.push_back(bucket.name);
  }
  // A head runs apart from the blocks before it.
  CHECK(names == std::vector<std::string>{"embedding+h.0+h.1+h.2", "h.3", "head"});
  CHECK(plan.groups[1].schedule.deferred == 1);
  for (const int rank : {0, 1, 2, 3}) {
    CHECK(plan.pipeline_rank(rank) == rank / 2);
    CHECK(plan.holds(plan.groups[0], rank) == (rank < 2));
    CHECK(plan.counts_in_loss(rank) == (rank >= 2));
  }
  // Both stages send a message of 8 elements for each of 3 micro-batches, forward or back.
  for (const int rank : {0, 3}) {
    double messages = 0.0;
    for (const Flow& flow : traffic_of(plan, rank)) {
      if (flow.ranks == 2 && flow.stride == 2 && flow.bytes == 3 * 8 * 4) messages += flow.bytes;
    }
    CHECK(messages == 3 * 8 * 4);
  }
}

TEST_CASE("a plan of tied ends: weights go once a step, gradients after each micro-batch") {
  const Units units = model_of({20, 20}, /*tied=*/true);
  const auto plan_of = [&](int micro_batches) {
    return make_plan(
        units,
        {.strategy = StrategyKind::ddp, .pipeline_parallel = 2, .micro_batches = micro_batches},
        {.ranks = 2, .device = {}});
  };
  const Plan plan = plan_of(3), longer = plan_of(4);
  // 400 + 200 elements, padded to multiples of 16.
  CHECK(tied_elements(plan.pipeline.tied, TiedTensors::gradients) == 400 + 208);
  CHECK(footprint_of(plan, 0).communication == 2 * 4 * 608);
  CHECK(footprint_of(plan, 1).communication == 0);
  const auto more = [&](int rank) {
    return footprint_of(longer, rank).bytes_sent - footprint_of(plan, rank).bytes_sent;
  };
  CHECK(more(0) == 0);
  CHECK(more(1) == 4 * 600);
}

}  // namespace tessera
