// Buckets, slots, the order of use and how often a bucket is gathered.
#include "sharding/plan/schedule.h"
#include "sharding/plan/stages.h"

#include <catch2/catch.hpp>

#include "runtime/check.h"

namespace tessera {
namespace {

/// Units named "ends", "b0", "b1" ... of `numel` parameters each.
Units units_of(int blocks, bool tied, std::int64_t numel = 10) {
  Units units;
  const auto add = [&](const std::string& name, bool at_both_ends) {
    units.push_back(std::make_unique<Unit>(
        name, std::vector{Parameter(name + ".w", {numel}, Initializer::zeros())}, at_both_ends));
  };
  add(tied ? "ends" : "first", tied);
  for (int i = 0; i < blocks; ++i) add("b" + std::to_string(i), false);
  if (!tied) add("last", false);
  return units;
}

std::vector<std::string> names_of(const std::vector<Bucket>& buckets) {
  std::vector<std::string> names;
  for (const Bucket& bucket : buckets) names.push_back(bucket.name);
  return names;
}

std::vector<BucketLayout> layouts_of(const Units& units) {
  return Partition(Layout::rows, 2, make_buckets(units)).buckets();
}

using Names = std::vector<std::string>;
using Ints = std::vector<int>;

}  // namespace

TEST_CASE("buckets: by unit, by size, by name") {
  const Units units = units_of(5, /*tied=*/true);
  CHECK(names_of(make_buckets(units)) == Names{"ends", "b0", "b1", "b2", "b3", "b4"});
  CHECK(names_of(make_buckets(units, "20")) == Names{"ends", "b0+b1", "b2+b3", "b4"});
  CHECK(names_of(make_buckets(units, "1000")) == Names{"ends", "b0+b1+b2+b3+b4"});
  CHECK(names_of(make_buckets(units, "b1,b4")) == Names{"ends", "b0", "b1+b2+b3", "b4"});
  CHECK(names_of(make_buckets(units_of(2, false), "1000")) == Names{"first+b0+b1+last"});
  REQUIRE_THROWS_WITH(make_buckets(units, "b9"), Catch::Contains("'b9' is no unit"));
  REQUIRE_THROWS_WITH(make_buckets(units, "0"), Catch::Contains("positive"));
}

TEST_CASE("buckets: what is trained comes first") {
  Units units = units_of(0, /*tied=*/true);
  const Parameter frozen("frozen", {2}, Initializer::zeros());
  const Parameter trained("trained", {2}, Initializer::zeros());
  frozen.set_trainable(false);
  units.push_back(std::make_unique<Unit>("b", std::vector{frozen, trained}));
  const auto buckets = make_buckets(units);
  CHECK(buckets[1].parameters == std::vector{trained, frozen});
}

TEST_CASE("the forward order ends where tied weights began") {
  CHECK(Schedule(layouts_of(units_of(3, true))).forward == Ints{0, 1, 2, 3, 0});
  CHECK(Schedule(layouts_of(units_of(3, false))).forward == Ints{0, 1, 2, 3, 4});
  CHECK(Schedule(layouts_of(units_of(0, true))).forward == Ints{0});
}

TEST_CASE("backward ends at the lowest bucket that is trained") {
  const Units units = units_of(3, /*tied=*/false);
  for (const int b : {0, 1}) units[b]->parameters()[0].set_trainable(false);
  CHECK(Schedule(layouts_of(units)).backward_end == 2);
}

TEST_CASE("neighbours never share a slot, and the ends have one of their own") {
  CHECK(Slots::assign(layouts_of(units_of(5, true)), 2).of_bucket == Ints{2, 1, 0, 1, 0, 1});
  CHECK(Slots::assign(layouts_of(units_of(3, false)), 2).of_bucket == Ints{2, 1, 0, 1, 2});
  CHECK(Slots::assign(layouts_of(units_of(3, true)), 0).of_bucket == Ints{0, 1, 2, 3});
  CHECK(Slots::assign(layouts_of(units_of(0, false)), 2).of_bucket == Ints{0, 1});
  const Slots slots = Slots::assign(layouts_of(units_of(3, true)), 2);
  CHECK(slots.sizes({100, 10, 30, 20}) == std::vector<std::int64_t>{30, 20, 100});
}

TEST_CASE("gathers: forward all, backward all but what the slots still hold") {
  const auto layouts = layouts_of(units_of(5, /*tied=*/true));
  const Schedule schedule(layouts);
  const auto counts = [&](int turns, int micro_batches) {
    const PipelinePlan alone{.shape = {.micro_batches = micro_batches}};
    return gathers_per_step(schedule, Slots::assign(layouts, turns), alone.passes_of(0));
  };
  // Two slots: b3 and b4 are still there when backward begins, and the ends always are.
  CHECK(counts(2, 1).forward == Ints{1, 1, 1, 1, 1, 1});
  CHECK(counts(2, 1).backward == Ints{0, 1, 1, 1, 0, 0});
  // The next micro-batch begins with b0 and b1 still there.
  CHECK(counts(2, 2).forward == Ints{1, 1, 1, 2, 2, 2});
  CHECK(counts(2, 2).backward == Ints{0, 2, 2, 2, 0, 0});
  CHECK(counts(1, 1).backward == Ints{0, 1, 1, 1, 1, 0});
  // A slot each: everything is gathered once per step.
  CHECK(counts(0, 3).forward == Ints{1, 1, 1, 1, 1, 1});
  CHECK(counts(0, 3).backward == Ints{0, 0, 0, 0, 0, 0});
}

}  // namespace tessera
