// The decisions of a plan: mesh, placements, rules, groups, and where everything lies.
#include "sharding/plan/plan.h"

#include <catch2/catch.hpp>

#include "runtime/check.h"
#include "runtime/text.h"
#include "sharding/plan/footprint.h"
#include "sharding/plan/nccl_memory.h"
#include "tests/sharding/toy_net.h"
#include "tests/support/error_of.h"

namespace tessera {

using test::ToyNet;

namespace {

using Ints = std::vector<int>;

Mesh mesh_2_by_4() {
  return {.axes = {{"replica", 2}, {"shard", 4}}};
}

Ints positions(const Mesh& mesh, const Axes& along) {
  Ints all;
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    all.push_back(mesh.position_along(rank, along));
  }
  return all;
}

Ints groups(const Mesh& mesh, const Axes& along) {
  Ints all;
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    all.push_back(mesh.group_along(rank, along));
  }
  return all;
}

/// hsdp's shards per replica, by default.
int default_shards(int ranks, int ranks_per_node) {
  const Mesh mesh =
      mesh_of({.strategy = StrategyKind::hsdp}, {.ranks = ranks, .ranks_per_node = ranks_per_node});
  return mesh.size_along({"shard"});
}

GradientCase gradient_case(StrategyKind strategy, int micro_batches, bool every) {
  const ToyNet net;
  const Plan plan = make_plan(
      net.units,
      {.strategy = strategy, .micro_batches = micro_batches, .reduce_every_micro_batch = every},
      {.ranks = strategy == StrategyKind::single ? 1 : 2});
  return plan.groups.front().gradients;
}

/// Names of the parameters that a group places.
std::vector<std::string> names_in(const GroupPlan& group) {
  std::vector<std::string> names;
  for (const BucketLayout& bucket : group.buckets()) {
    for (const Parameter& parameter : bucket.parameters) names.push_back(parameter.name());
  }
  return names;
}

}  // namespace

TEST_CASE("mesh: groups along the last axis are neighbours, along the first they are strided") {
  const Mesh mesh = mesh_2_by_4();
  CHECK(mesh.world_size() == 8);
  CHECK(positions(mesh, {"shard"}) == Ints{0, 1, 2, 3, 0, 1, 2, 3});
  CHECK(groups(mesh, {"shard"}) == Ints{0, 0, 0, 0, 1, 1, 1, 1});
  CHECK(positions(mesh, {"replica"}) == Ints{0, 0, 0, 0, 1, 1, 1, 1});
  CHECK(groups(mesh, {"replica"}) == Ints{0, 1, 2, 3, 0, 1, 2, 3});
  CHECK(positions(mesh, {"replica", "shard"}) == Ints{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(groups(mesh, {"replica", "shard"}) == Ints(8, 0));
  CHECK(positions(mesh, {}) == Ints(8, 0));
  CHECK(to_string(mesh) == "replica 2 x shard 4");
  REQUIRE_THROWS_WITH(mesh.size_along({"expert"}), Catch::Contains("no axis 'expert'"));
}

TEST_CASE("hsdp: replicas are nodes where there are several, as far as sums keep ddp's tree") {
  CHECK(default_shards(16, 8) == 8);
  CHECK(default_shards(128, 8) == 8);
  CHECK(default_shards(12, 6) == 2);  // rows of 6 add in another order
  CHECK(default_shards(8, 8) == 4);   // one node: half of the ranks
  CHECK(default_shards(8, 0) == 4);
  CHECK(default_shards(8, 1) == 4);  // a rank per node: neighbours have nothing in common
}

TEST_CASE("reshard groups are neighbours") {
  const ToyNet net;
  const Plan plan =
      make_plan(net.units, {.strategy = StrategyKind::fsdp, .reshard_group = 2}, {.ranks = 4});
  Ints numbers, positions;
  for (int shard = 0; shard < 4; ++shard) {
    numbers.push_back(plan.groups[0].reshard_group_of(shard).number);
    positions.push_back(plan.groups[0].reshard_group_of(shard).position);
  }
  CHECK(numbers == Ints{0, 0, 1, 1});
  CHECK(positions == Ints{0, 1, 0, 1});
}

TEST_CASE("a reshard group of all shards is no group") {
  const ToyNet net;
  const auto reshard = [&](int group) {
    const ShardingOptions options = {.strategy = StrategyKind::fsdp, .reshard_group = group};
    return make_plan(net.units, options, {.ranks = 4}).groups[0].placement.reshard;
  };
  CHECK(reshard(0) == Reshard::to_all);
  CHECK(reshard(1) == Reshard::never);
  CHECK(reshard(2) == Reshard::to_groups);
  CHECK(reshard(4) == Reshard::to_all);
}

TEST_CASE("gradients: each case of docs/sharding_cost.md") {
  using enum GradientCase;
  for (const auto kind : {StrategyKind::ddp, StrategyKind::zero1}) {
    CHECK(gradient_case(kind, 1, true) == reduce_in_place);
    CHECK(gradient_case(kind, 2, true) == accumulate_from_buffer);
    CHECK(gradient_case(kind, 2, false) == reduce_in_place);
  }
  for (const auto kind : {StrategyKind::zero2, StrategyKind::zero3, StrategyKind::fsdp}) {
    CHECK(gradient_case(kind, 1, true) == accumulate_from_slot);
    CHECK(gradient_case(kind, 2, true) == accumulate_from_slot);
    CHECK(gradient_case(kind, 2, false) == sum_then_reduce);
  }
  CHECK(gradient_case(StrategyKind::single, 2, true) == reduce_in_place);
}

TEST_CASE("rules: the first that matches places a parameter, and a unit has several buckets") {
  const ToyNet net(2);
  ShardingOptions options{.strategy = StrategyKind::fsdp};
  options.rules = parse_placement_rules("*.bias -> ddp, layer.1.* -> zero3, norm.* -> ddp");
  const Plan plan = make_plan(net.units, options, {.ranks = 4});
  REQUIRE(plan.groups.size() == 3);
  CHECK(plan.groups[0].placement.name == "fsdp");
  CHECK(names_in(plan.groups[0]) ==
        std::vector<std::string>{"table", "layer.0.up", "layer.0.down"});
  CHECK(plan.groups[1].placement.name == "ddp");
  CHECK(names_in(plan.groups[1]) ==
        std::vector<std::string>{"norm.weight", "norm.bias", "layer.0.bias", "layer.1.bias"});
  CHECK(plan.groups[1].replicas == 4);
  CHECK(plan.groups[2].placement.name == "zero3");
  CHECK(names_in(plan.groups[2]) == std::vector<std::string>{"layer.1.up", "layer.1.down"});
  // The norm counts every element once: a replicated one on the first rank.
  CHECK(plan.norm_axes == Axes{"replica", "shard"});
  CHECK(plan.counts_in_norm(plan.groups[1], 0));
  CHECK_FALSE(plan.counts_in_norm(plan.groups[1], 1));
  CHECK(plan.counts_in_norm(plan.groups[0], 1));
}

TEST_CASE("experts are cut over an axis of their own and placed over the others") {
  const ToyNet net(2, /*checkpointing=*/false, /*tied=*/true, /*mixtures=*/true);
  struct Expected {
    StrategyKind strategy;
    std::string mesh;
    int shards, replicas, shards_of_experts, replicas_of_experts;
  };
  for (const Expected& expected :
       {Expected{StrategyKind::fsdp, "replica 1 x shard 2 x expert 4", 8, 1, 2, 1},
        Expected{StrategyKind::ddp, "replica 2 x shard 1 x expert 4", 1, 8, 1, 2},
        Expected{StrategyKind::hsdp, "replica 2 x shard 1 x expert 4", 4, 2, 1, 2}}) {
    INFO(name_of(expected.strategy));
    const ShardingOptions options{.strategy = expected.strategy, .expert_parallel = 4};
    const Plan plan = make_plan(net.units, options, {.ranks = 8});
    CHECK(to_string(plan.mesh) == expected.mesh);
    REQUIRE(plan.groups.size() == 2);
    const GroupPlan &others = plan.groups[0], &experts = plan.groups[1];
    CHECK(names_in(experts) ==
          std::vector<std::string>{"layer.0.experts.up", "layer.0.experts.down"});
    CHECK(std::pair(others.shards, others.replicas) ==
          std::pair(expected.shards, expected.replicas));
    CHECK(std::pair(experts.shards, experts.replicas) ==
          std::pair(expected.shards_of_experts, expected.replicas_of_experts));
    CHECK(std::pair(others.expert_ranks(), experts.expert_ranks()) == std::pair(1, 4));
    // The ranks of a replica, or all ranks, count every element once in the norm.
    std::int64_t counted = 0, elements = 0;
    for (int rank = 0; rank < plan.mesh.size_along(plan.norm_axes); ++rank) {
      for (const GroupPlan& group : plan.groups) {
        const int shard = plan.mesh.position_along(rank, group.placement.shard);
        if (plan.counts_in_norm(group, rank)) counted += group.partition.owned_elements(shard);
      }
    }
    for (const auto& unit : net.units) {
      for (const Parameter& parameter : unit->parameters()) elements += parameter.numel();
    }
    CHECK(counted == elements);
  }
}

TEST_CASE("rules: hsdp for some parameters, all ranks for the others") {
  const ToyNet net;
  ShardingOptions options{.strategy = StrategyKind::fsdp, .shard_size = 2};
  options.rules = parse_placement_rules("layer.* -> hsdp_flat");
  const Plan plan = make_plan(net.units, options, {.ranks = 8});
  REQUIRE(plan.groups.size() == 2);
  CHECK(plan.groups[0].shards == 8);
  CHECK(plan.groups[1].shards == 2);
  CHECK(plan.groups[1].replicas == 4);
  CHECK(plan.groups[1].placement.layout == Layout::flat);
}

TEST_CASE("rules: backward reaches a frozen bucket if other placements train below it") {
  const ToyNet net(2, /*checkpointing=*/false, /*tied=*/false);
  net.layers[0].bias.set_trainable(false);
  ShardingOptions options{.strategy = StrategyKind::fsdp};
  options.rules = parse_placement_rules("*.bias -> zero3");
  const auto lowest = [&] {
    return make_plan(net.units, options, {.ranks = 2}).groups[1].schedule.backward_end;
  };
  CHECK(lowest() == 0);  // the embedding is trained
  for (const Parameter& frozen : {net.table, net.layers[0].up, net.layers[0].down}) {
    frozen.set_trainable(false);
  }
  CHECK(lowest() == 1);
}

TEST_CASE("rules: texts and patterns") {
  CHECK(parse_placement_rules("").empty());
  CHECK(parse_placement_rules(" a* -> fsdp_flat ") ==
        std::vector<PlacementRule>{{"a*", StrategyKind::fsdp, true}});
  REQUIRE_THROWS_WITH(parse_placement_rules("a fsdp"),
                      Catch::Contains("'name pattern -> strategy'"));
  REQUIRE_THROWS_WITH(parse_placement_rules("a -> fsdp3"), Catch::Contains("unknown strategy"));
  CHECK(matches_pattern("*.bias", "h.0.bias"));
  CHECK_FALSE(matches_pattern("*.bias", "h.0.bias.x"));
  CHECK(matches_pattern("h.*.mlp.*", "h.10.mlp.c_fc.weight"));
  CHECK_FALSE(matches_pattern("h.1.*", "h.10.ln"));
  CHECK(matches_pattern("*", ""));
  CHECK(matches_pattern("h.?.ln_?.*", "h.1.ln_f.bias"));
  CHECK_FALSE(matches_pattern("h.?.*", "h.10.ln"));
  CHECK_FALSE(matches_pattern("h.?", "h."));
  ShardingOptions options{.strategy = StrategyKind::fsdp};
  options.rules = {{"*", StrategyKind::single}};
  REQUIRE_THROWS_WITH(check_options(options, {.ranks = 2}), Catch::Contains("choose ddp"));
}

TEST_CASE("rules: a setting of a rule replaces the option for its parameters only") {
  const ToyNet net;
  ShardingOptions options{.strategy = StrategyKind::fsdp,
                          .reshard_group = 2,
                          .compute_dtype = DType::bf16,
                          .offload = Offload::all};
  options.rules = parse_placement_rules(
      "layer.0.* -> fsdp reshard_after_forward=false compute_dtype=f32 offload=none, "
      "layer.1.* -> fsdp  reduce_dtype=bf16, layer.2.* -> fsdp offload=all, layer.3.* -> ddp");
  CHECK(parse_placement_rules(to_string(options.rules)) == options.rules);
  const Plan plan = make_plan(net.units, options, {.ranks = 4});
  REQUIRE(plan.groups.size() == 4);  // the setting of layer 2 is the option's: no group of its own

  const Placement& rest = plan.groups[0].placement;
  CHECK(rest.name == "fsdp");
  CHECK(rest.reshard == Reshard::to_groups);
  CHECK(rest.compute_dtype == DType::bf16);
  CHECK(rest.reduce_dtype == DType::f32);
  CHECK(plan.groups[0].masters == Masters::on_host);
  const Placement& first = plan.groups[1].placement;
  CHECK(first.reshard == Reshard::never);
  CHECK(first.compute_dtype == DType::f32);
  CHECK(plan.groups[1].masters == Masters::separate);
  const Placement& second = plan.groups[2].placement;
  CHECK(second.name == "fsdp reduce_dtype=bf16");
  CHECK(second.reshard == Reshard::to_groups);
  CHECK(second.reduce_dtype == DType::bf16);
  // ddp takes the option as far as it can: whole parameters stay on the GPU, masters do not.
  CHECK(plan.groups[3].placement.offload == Offload::optimizer);
}

TEST_CASE("rules: a setting that does not suit its strategy is an error that quotes the rule") {
  ShardingOptions options{.strategy = StrategyKind::fsdp};
  const auto error_of = [&](std::string_view rules) {
    return test::error_of([&] {
      options.rules = parse_placement_rules(rules);
      check_options(options, {.ranks = 4});
    });
  };
  CHECK(error_of("a -> zero1 offload=all") ==
        "sharding.rules: 'a -> zero1 offload=all': offload all is for zero3, fsdp and hsdp: with "
        "zero1 every GPU holds all parameters; choose optimizer");
  CHECK(error_of("a -> zero3 reshard_after_forward=2") ==
        "sharding.rules: 'a -> zero3 reshard_after_forward=2': reshard_after_forward 2: groups are "
        "for fsdp and hsdp, not zero3");
  CHECK(error_of("a -> ddp reduce_dtype=i32") ==
        "training computes and reduces in f32, bf16 or f16, not i32");
  CHECK(error_of("a -> fsdp reshard_after_forward=3") ==
        "sharding.reshard_after_forward 3 does not divide the 4 ranks that share the model");
  CHECK(error_of("a -> fsdp reshard_after_forward=0") ==
        "reshard_after_forward: expected true, false or a number of ranks from 2, got '0'");
  CHECK(error_of("a -> fsdp buckets=2") ==
        "a rule has no setting 'buckets'; the settings are reshard_after_forward, compute_dtype, "
        "reduce_dtype and offload");
}

TEST_CASE("frozen parameters have no f32 master") {
  const ToyNet net;
  for (const auto& unit : net.units) {
    for (const Parameter& parameter : unit->parameters()) parameter.set_trainable(false);
  }
  net.layers[3].up.set_trainable(true);  // 60 of 638 elements
  const auto parameters = [&](StrategyKind strategy, DType dtype) {
    const ShardingOptions options{.strategy = strategy, .compute_dtype = dtype};
    return footprint_of(net.units, options, /*world_size=*/2, /*rank=*/0).parameters;
  };
  const Partition whole(Layout::whole, 1, make_buckets(net.units));
  std::int64_t elements = 0;
  for (const BucketLayout& bucket : whole.buckets()) elements += bucket.elements;
  CHECK(parameters(StrategyKind::ddp, DType::f32) == 4 * elements);
  CHECK(parameters(StrategyKind::ddp, DType::bf16) == 2 * elements + 4 * 60);
  const Partition rows(Layout::rows, 2, make_buckets(net.units));
  const std::int64_t owned = rows.owned_elements(0);
  CHECK(parameters(StrategyKind::fsdp, DType::f32) == 4 * owned);
  CHECK(parameters(StrategyKind::fsdp, DType::bf16) == 2 * (owned - 30) + 4 * 30);
}

TEST_CASE("a parameter that two units list is an error that names both") {
  const Parameter table("table", {4, 2}, Initializer::zeros());
  Units units;
  units.push_back(std::make_unique<Unit>("embedding", std::vector{table}));
  units.push_back(std::make_unique<Unit>("head", std::vector{table}));
  REQUIRE_THROWS_WITH(
      make_plan(units, {.strategy = StrategyKind::fsdp}, {.ranks = 2}),
      Catch::Contains("parameter 'table' is listed by unit 'embedding' and by unit 'head'"));
}

TEST_CASE("offload moves masters to the host next to a GPU, and nothing on a CPU") {
  const ToyNet net;
  const ShardingOptions options{.strategy = StrategyKind::fsdp, .offload = Offload::all};
  const auto masters = [&](DeviceType device) {
    const Machine machine = {.ranks = 2, .device = {device, 0}};
    return make_plan(net.units, options, machine).groups[0].masters;
  };
  CHECK(masters(DeviceType::cuda) == Masters::on_host);
  CHECK(masters(DeviceType::cpu) == Masters::separate);
}

TEST_CASE("sum_replicas_once: hsdp sends one sum per step across replicas") {
  const ToyNet net;
  ShardingOptions options{
      .strategy = StrategyKind::hsdp, .shard_size = 2, .reshard_group = 1, .micro_batches = 3};
  const auto bytes = [&] { return footprint_of(net.units, options, 4, 0).bytes_sent; };
  const std::int64_t each = bytes();
  options.sum_replicas_once = true;
  const Partition partition(Layout::rows, 2, make_buckets(net.units));
  std::int64_t own_parts = 0;
  for (const BucketLayout& bucket : partition.buckets()) {
    for (const Segment& segment : bucket.segments) own_parts += segment.range.count / 2;
  }
  // Two ranks exchange halves there and back: as many elements as they sum. Two sums are saved.
  CHECK(each - bytes() == 2 * 4 * own_parts);
}

TEST_CASE("gradients in bf16 halve the bytes that are held and sent of them") {
  const ToyNet net(2);
  for (const StrategyKind strategy : {StrategyKind::ddp, StrategyKind::zero2, StrategyKind::fsdp}) {
    INFO(name_of(strategy));
    ShardingOptions options{.strategy = strategy, .compute_dtype = DType::bf16};
    const Footprint wide = footprint_of(net.units, options, 4, 0);
    const std::int64_t wide_total = wide.gradients + wide.communication;
    options.reduce_dtype = DType::bf16;
    const Footprint sent = footprint_of(net.units, options, 4, 0);
    options.gradient_dtype = DType::bf16;
    const Footprint held = footprint_of(net.units, options, 4, 0);
    CHECK(2 * held.gradients == wide.gradients);
    CHECK(held.gradients + held.communication < wide_total);
    CHECK(held.bytes_sent == sent.bytes_sent);
    CHECK(held.parameters == wide.parameters);
  }
}

TEST_CASE("a plan prints where everything lies") {
  const ToyNet net(2);
  ShardingOptions options{.strategy = StrategyKind::fsdp, .compute_dtype = DType::bf16};
  options.rules = parse_placement_rules("*.bias -> ddp reduce_dtype=bf16");
  CHECK(to_string(make_plan(net.units, options, {.ranks = 4})) ==
        "mesh        replica 1 x shard 4\n"
        "\n"
        "fsdp: 324 parameters in 3 buckets\n"
        "layout      rows, 4 shards x 1 replica\n"
        "parameters  gathered in bf16 into 3 slots, resharded after forward\n"
        "masters     f32, in memory of their own\n"
        "gradients   two slots shared by turns, reduced and added to the shards after each "
        "micro-batch\n"
        "\n"
        "ddp reduce_dtype=bf16: 26 parameters in 3 buckets\n"
        "layout      whole, 1 shard x 4 replicas\n"
        "parameters  whole on every rank, in bf16\n"
        "masters     f32, in memory of their own\n"
        "gradients   a buffer per bucket, reduced in place once a step; sent in bf16\n");
}

TEST_CASE("plan: NCCL's buffers have a bound for every mesh") {
  constexpr std::int64_t kMiB = std::int64_t{1} << 20;
  const auto bound = [](std::vector<Axis> axes, const NcclUse& use) {
    return most_nccl_bytes({.axes = std::move(axes)}, use) / kMiB;
  };
  CHECK(bound({{"shard", 1}}, {.ctas = 16}) == 0);
  CHECK(bound({{"shard", 2}}, {.ctas = 16}) == 16 * (12 + 2 * 2));
  // Two neighbours in a ring, and NVLink SHARP among eight.
  CHECK(bound({{"shard", 8}}, {.ctas = 16}) == 16 * (2 * 12 + 8 * 2));
  CHECK(bound({{"shard", 8}}, {.ctas = 4}) == 4 * (2 * 12 + 8 * 2));
  CHECK(bound({{"shard", 8}}, {.ctas = 16, .messages = true}) == 16 * ((2 + 7) * 12 + 8 * 2));
  // Rings of 2, of 4 and of 8 ranks.
  CHECK(bound({{"replica", 2}, {"shard", 4}}, {.ctas = 1}) == 5 * 12 + (2 + 4 + 8) * 2);
  // No more neighbours than other ranks.
  CHECK(bound({{"shard", 2}, {"tensor", 2}}, {.ctas = 1}) == 3 * 12 + (2 + 2 + 4) * 2);
  CHECK(bound({{"shard", 16}}, {.ctas = 1, .ranks_per_machine = 8}) == 2 * 20 + 8 * 2);
  // Five windows, and the flags and buffers of groups of 3 and of 2 and 4 and 8 ranks.
  CHECK(bound({{"shard", 3}}, {.ctas = 1, .windows = 5}) == 2 * 12 + 3 * 2 + 5 * 2 + (4 + 2));
  CHECK(bound({{"replica", 2}, {"shard", 4}}, {.ctas = 1, .windows = 5}) ==
        5 * 12 + (2 + 4 + 8) * 2 + 5 * 2 + (2 + 4 + 8) + 3 * 2);
  CHECK(bound({{"shard", 1}}, {.ctas = 16, .windows = 5}) == 0);
}

}  // namespace tessera
