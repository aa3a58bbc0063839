#include "sharding/plan/placement.h"

#include <algorithm>
#include <bit>

#include "runtime/check.h"
#include "runtime/text.h"

namespace tessera {
namespace {

const Axes kNone = {};
const Axes kReplicas = {"replica"};
const Axes kExperts = {"expert"};
const Axes kShards = {"shard", "context", "expert"};
const Axes kBoth = {"replica", "shard", "context", "expert"};

/// These axes without the ones that the mesh lacks.
Axes on_mesh(Axes axes, const Mesh& mesh) {
  std::erase_if(axes, [&](const std::string& name) { return !mesh.has(name); });
  return axes;
}

/// The largest power of two that is at most `most` and divides `ranks`.
int power_of_two_in(int ranks, int most) {
  auto size = static_cast<int>(std::bit_floor(static_cast<unsigned>(std::max(1, most))));
  while (ranks % size != 0) size /= 2;
  return size;
}

/// The data ranks within a shard that share out tokens or experts.
int inner_ranks(const ShardingOptions& options) {
  return options.context_parallel * options.expert_parallel;
}

/// hsdp's shards per replica unless the options name a number: the data ranks of a node, or half of
/// all. At least the ranks that share out tokens and experts.
int default_shard_size(const ShardingOptions& options, const Machine& machine) {
  const int ranks = data_ranks(options, machine.ranks);
  const int on_node = machine.ranks_per_node / options.tensor_parallel;
  const bool several_nodes = on_node > 1 && machine.ranks_per_node < machine.ranks;
  const int most = several_nodes ? power_of_two_in(on_node, on_node) : ranks / 2;
  const int size = power_of_two_in(ranks, most);
  const int inner = inner_ranks(options);
  return size % inner == 0 ? size : inner;
}

bool is_fsdp(StrategyKind kind) {
  return kind == StrategyKind::fsdp || kind == StrategyKind::hsdp;
}

bool shards_parameters(StrategyKind kind) {
  return is_fsdp(kind) || kind == StrategyKind::zero3;
}

/// Raises Error if a rule's settings contradict its strategy. `prefix` stands before the setting.
void check_rule(const PlacementRule& rule, std::string_view prefix) {
  const std::string_view strategy = name_of(rule.strategy);
  check(!rule.flatten_parameters || is_fsdp(rule.strategy),
        "{}flatten_parameters is for fsdp and hsdp, not {}", prefix, strategy);
  const int group = rule.reshard_group.value_or(0);
  check(group >= 0, "{}reshard_after_forward is {}; expected a number from 2", prefix, group);
  check(group <= 1 || is_fsdp(rule.strategy),
        "{}reshard_after_forward {}: groups are for fsdp and hsdp, not {}", prefix, group,
        strategy);
  check(rule.offload != Offload::all || shards_parameters(rule.strategy),
        "{}offload all is for zero3, fsdp and hsdp: with {} every GPU holds all parameters; choose "
        "optimizer",
        prefix, strategy);
  for (const std::optional<DType>& dtype : {rule.compute_dtype, rule.reduce_dtype}) {
    const DType given = dtype.value_or(DType::f32);
    check(given == DType::f32 || given == DType::bf16 || given == DType::f16,
          "training computes and reduces in f32, bf16 or f16, not {}", name_of(given));
  }
}

void check_rules(const ShardingOptions& options) {
  check(options.rules.empty() || options.strategy != StrategyKind::single,
        "sharding.rules are for several ranks, and strategy single is for one; choose ddp");
  for (const PlacementRule& rule : options.rules) {
    check(rule.strategy != StrategyKind::single,
          "sharding.rules: '{} -> single' keeps gradients apart on every rank; choose ddp, which "
          "keeps parameters whole and sums their gradients",
          rule.pattern);
    check_rule(rule, fmt::format("sharding.rules: '{} -> {}': ", rule.pattern, recipe_of(rule)));
  }
}

bool all_reduced_in_f32(const ShardingOptions& options) {
  const auto narrows = [](const PlacementRule& rule) {
    return rule.reduce_dtype.value_or(DType::f32) != DType::f32;
  };
  return options.reduce_dtype == DType::f32 &&
         std::none_of(options.rules.begin(), options.rules.end(), narrows);
}

/// One tree of additions: each of these would add in another order or round in between.
void check_elastic(const ShardingOptions& options, int ranks) {
  const auto is_power = [](int n) { return std::has_single_bit(static_cast<unsigned>(n)); };
  check(is_power(ranks) && is_power(options.micro_batches),
        "train.elastic needs powers of two: there are {} ranks with {} micro-batches each", ranks,
        options.micro_batches);
  check(options.reduce_every_micro_batch && !options.sum_replicas_once,
        "train.elastic adds up every micro-batch over all ranks; leave out sharding.reduce and "
        "sharding.sum_replicas_once");
  check(all_reduced_in_f32(options),
        "train.elastic needs gradients sent in f32; leave out sharding.reduce_dtype");
  check(
      options.expert_parallel == 1 || !changes_sums(options.experts),
      "train.elastic adds up the experts' gradients of each micro-batch over all ranks; leave out "
      "sharding.expert_sums and sharding.expert_pieces");
}

/// A gradient in bf16 is rounded when it is written. Sums that are to have the same bits for another cut of
/// the step are therefore not for it, nor is a computation in more bits.
void check_gradient_dtype(const ShardingOptions& options) {
  const DType held = options.gradient_dtype;
  if (held == DType::f32) return;
  check(held == DType::bf16, "gradients are held in f32 or bf16, not {}", name_of(held));
  check(options.micro_batches == 1 && options.pipeline_parallel == 1,
        "optimizer.gradient_dtype bf16 is for one micro-batch and one stage, and a step has {} and "
        "{}; leave it out, or set data.accumulation_steps=1 and sharding.pipeline_parallel=1",
        options.micro_batches, options.pipeline_parallel);
  check(!options.elastic && options.grid == 0,
        "optimizer.gradient_dtype bf16 rounds every rank's gradients, and {} adds them up in f32; "
        "leave one of them out",
        options.elastic ? "train.elastic" : "sharding.grid");
  const auto check_setting = [&](std::string_view key, std::optional<DType> dtype, bool or_f32) {
    const DType given = dtype.value_or(held);
    check(given == held || (or_f32 && given == DType::f32),
          "optimizer.gradient_dtype bf16 is for {} bf16, not {}", key, name_of(given));
  };
  check_setting("runtime.compute_dtype", options.compute_dtype, false);
  check_setting("sharding.reduce_dtype", options.reduce_dtype, true);
  for (const PlacementRule& rule : options.rules) {
    check_setting("sharding.rules: compute_dtype", rule.compute_dtype, false);
    check_setting("sharding.rules: reduce_dtype", rule.reduce_dtype, false);
  }
}

/// Every rank's parts of a divided sum are a subtree.
void check_grid(const ShardingOptions& options) {
  const auto is_power = [](int n) { return std::has_single_bit(static_cast<unsigned>(n)); };
  const int grid = options.grid;
  check(grid == 0 || (grid > 0 && is_power(grid)), "sharding.grid is {}; expected a power of two",
        grid);
  for (const auto& [key, divided] : {std::pair("tensor_parallel", options.tensor_parallel),
                                     std::pair("context_parallel", options.context_parallel)}) {
    check(is_power(divided), "sharding.{} is {}; expected a power of two, so that sums are a tree",
          key, divided);
    check(grid == 0 || grid % divided == 0, "sharding.grid {} is no multiple of sharding.{} {}",
          grid, key, divided);
  }
  // Tensor ranks share out the rows of a context rank: whole leaves of them.
  check(
      grid == 0 || grid % (options.tensor_parallel * options.context_parallel) == 0,
      "sharding.grid {} is no multiple of sharding.context_parallel {} x sharding.tensor_parallel "
      "{}",
      grid, options.context_parallel, options.tensor_parallel);
}

/// Sums of fixed leaves go on in the tree over ranks, micro-batch by micro-batch.
void check_context(const ShardingOptions& options) {
  check(options.strategy != StrategyKind::single,
        "sharding.context_parallel {} needs ranks that share the model; choose ddp or fsdp",
        options.context_parallel);
  if (options.grid == 0) return;
  check(options.micro_batches == 1 ||
            (options.reduce_every_micro_batch && !options.sum_replicas_once),
        "sharding.grid adds up every micro-batch over the context ranks; leave out sharding.reduce "
        "and sharding.sum_replicas_once");
  check(all_reduced_in_f32(options),
        "sharding.grid needs gradients sent in f32; leave out sharding.reduce_dtype");
  check(options.expert_parallel == 1,
        "sharding.grid with sharding.context_parallel {} needs experts on every rank: sums over "
        "expert ranks come before those over context ranks. Set sharding.expert_parallel=1, or "
        "sharding.grid=0",
        options.context_parallel);
}

/// The rule for all parameters that no other rule matches.
PlacementRule rule_for_the_rest(const ShardingOptions& options) {
  const bool narrow = options.gradient_dtype != DType::f32;  // gradients are sent as they are held
  return {.pattern = "*",
          .strategy = options.strategy,
          .flatten_parameters = options.flatten_parameters,
          .reshard_group = options.reshard_group,
          .compute_dtype = options.compute_dtype,
          .reduce_dtype = narrow ? options.gradient_dtype : options.reduce_dtype,
          .offload = options.offload};
}

/// Drops the settings of `rule` that `rest` has, too.
PlacementRule without_repetition(PlacementRule rule, const PlacementRule& rest) {
  if (rule.reshard_group == rest.reshard_group) rule.reshard_group.reset();
  if (rule.compute_dtype == rest.compute_dtype) rule.compute_dtype.reset();
  if (rule.reduce_dtype == rest.reduce_dtype) rule.reduce_dtype.reset();
  if (rule.offload == rest.offload) rule.offload.reset();
  return rule;
}

/// The row of the table in placement.h for the rule's strategy.
Placement row_of(const PlacementRule& rule) {
  const StrategyKind kind = rule.strategy;
  const Layout slices = rule.flatten_parameters ? Layout::flat : Layout::rows;
  constexpr auto kWhole = Held::whole;
  constexpr auto kSharded = Held::sharded;
  const std::string name = recipe_of(rule);
  switch (kind) {  //        sharded  replicated  layout           parameters  gradients
    case StrategyKind::single:
      return {name, /*    */ kNone, kNone, /*  */ Layout::whole, /*   */ kWhole, /* */ kWhole};
    case StrategyKind::ddp:
      return {name, /*    */ kNone, kBoth, /*  */ Layout::whole, /*   */ kWhole, /* */ kWhole};
    case StrategyKind::zero1:
      return {name, /*    */ kBoth, kNone, /*  */ Layout::flat, /*    */ kWhole, /* */ kWhole};
    case StrategyKind::zero2:
      return {name, /*    */ kBoth, kNone, /*  */ Layout::flat, /*    */ kWhole, /* */ kSharded};
    case StrategyKind::zero3:
      return {name, /*    */ kBoth, kNone, /*  */ Layout::tensors, /* */ kSharded, kSharded};
    case StrategyKind::fsdp:
      return {name, /*    */ kBoth, kNone, /*  */ slices, /*          */ kSharded, kSharded};
    case StrategyKind::hsdp:
      return {name, /*    */ kShards, kReplicas, slices, /*        */ kSharded, kSharded};
  }
  fail("there is no strategy number {}", static_cast<int>(kind));
}

void set_reshard(Placement& placement, int group, int shards) {
  const bool by_experts = !placement.experts.empty() && group >= shards;
  if (placement.parameters == Held::whole || group == 0 || by_experts) return;
  if (group == 1) {
    placement.reshard = Reshard::never;
    return;
  }
  check(shards % group == 0,
        "sharding.reshard_after_forward {} does not divide the {} ranks that share {}", group,
        shards, placement.experts.empty() ? "the model" : "an expert (sharding.expert_parallel)");
  if (placement.layout == Layout::tensors || group == shards) return;
  placement.reshard = Reshard::to_groups;
  placement.reshard_ranks = group;
}

/// The experts are cut over their axis, and each part is placed over the other axes.
void cut_over_experts(Placement& placement, const Mesh& mesh) {
  placement.name += fmt::format(", experts over {} ranks", mesh.size_along(kExperts));
  placement.experts = kExperts;
  std::erase(placement.shard, kExperts.front());
  std::erase(placement.replicate, kExperts.front());
  placement.gradients = Held::sharded;
}

/// The form of parameters' values in their windows: rounded to 8 bits from masters, or from a frozen weight's values.
enum class Form { plain, packed, rounded, frozen_rounded };

Form form_of(const Parameter& parameter) {
  if (parameter.packed()) return Form::packed;
  if (!parameter.rounded()) return Form::plain;
  return parameter.trainable() ? Form::rounded : Form::frozen_rounded;
}

/// The parameters that a placement is for.
struct Kind {
  bool experts = false;
  Form form = Form::plain;
};

/// A setting that the rule leaves open is that of the rule for the rest.
Placement make_placement(const PlacementRule& given, const ShardingOptions& options,
                         const Mesh& mesh, const Device& device, const Kind& kind) {
  const PlacementRule rest = rule_for_the_rest(options);
  const PlacementRule rule = without_repetition(given, rest);
  Placement placement = row_of(rule);
  placement.shard = on_mesh(placement.shard, mesh);
  placement.replicate = on_mesh(placement.replicate, mesh);
  if (kind.experts) cut_over_experts(placement, mesh);
  set_reshard(placement, rule.reshard_group.value_or(*rest.reshard_group),
              mesh.size_along(placement.shard));
  placement.compute_dtype = rule.compute_dtype.value_or(*rest.compute_dtype);
  if (kind.form == Form::packed) {
    placement.name += ", packed";
    placement.compute_dtype = DType::u8;
  }
  placement.master_dtype = options.master_dtype;
  placement.gradient_dtype = options.gradient_dtype;
  placement.reduce_dtype = rule.reduce_dtype.value_or(*rest.reduce_dtype);
  if (device != Device{}) placement.offload = rule.offload.value_or(*rest.offload);
  if (placement.offload == Offload::all && placement.parameters == Held::whole) {
    placement.offload = Offload::optimizer;  // whole parameters have to be on the device
  }
  placement.window_dtype = placement.compute_dtype;
  // Numbers of 8 bits are a copy of other values, and the host has no scales.
  const bool has_form = kind.form == Form::rounded || kind.form == Form::frozen_rounded;
  const bool is_copied =
      placement.parameters == Held::sharded ||
      (kind.form == Form::rounded && placement.master_dtype != placement.compute_dtype);
  if (has_form && is_copied && placement.compute_dtype == DType::bf16 &&
      placement.offload == Offload::none) {
    placement.name += ", in 8 bits";
    placement.window_dtype = DType::e4m3;
  }
  return placement;
}

}  // namespace

Mesh mesh_of(const ShardingOptions& options, const Machine& machine) {
  const int ranks = data_ranks(options, machine.ranks);
  int shards = ranks;
  if (options.strategy == StrategyKind::ddp) shards = 1;
  if (has_hsdp(options)) {
    shards = options.shard_size > 0 ? options.shard_size : default_shard_size(options, machine);
  }
  // The inner axes are taken from the shards, or from the replicas where there are no shards.
  const int inner = inner_ranks(options);
  const int others = shards == 1 ? 1 : shards / inner;
  Mesh mesh;
  const auto add = [&](std::string name, int size) {
    if (size > 1) mesh.axes.push_back({std::move(name), size});
  };
  add("pipeline", options.pipeline_parallel);
  mesh.axes.push_back({"replica", ranks / inner / others});
  mesh.axes.push_back({"shard", others});
  add("context", options.context_parallel);
  add("expert", options.expert_parallel);
  add("tensor", options.tensor_parallel);
  return mesh;
}

Axes data_axes(const Mesh& mesh) {
  return on_mesh(kBoth, mesh);
}

Axes batch_axes(const Mesh& mesh) {
  return on_mesh({"replica", "shard", "expert"}, mesh);
}

int replica_size(const Mesh& mesh) {
  return mesh.size_along(on_mesh(kShards, mesh));
}

Axes Placement::owners() const {
  Axes axes = shard;
  axes.insert(axes.end(), experts.begin(), experts.end());
  return axes;
}

std::vector<Placement> placements_of(const ShardingOptions& options, const Mesh& mesh,
                                     const Device& device) {
  std::vector<Placement> placements;
  for (const Form form : {Form::plain, Form::packed, Form::rounded, Form::frozen_rounded}) {
    for (const bool experts : {false, true}) {
      if (experts && options.expert_parallel == 1) break;
      const auto add = [&](const PlacementRule& rule) {
        placements.push_back(make_placement(rule, options, mesh, device, {experts, form}));
      };
      add(rule_for_the_rest(options));
      for (const PlacementRule& rule : options.rules) add(rule);
    }
  }
  return placements;
}

void check_options(const ShardingOptions& options, const Machine& machine) {
  const std::string_view strategy = name_of(options.strategy);
  check(machine.ranks >= 1, "the number of ranks is {}; expected at least 1", machine.ranks);
  const int ranks = data_ranks(options, machine.ranks);
  check(options.strategy != StrategyKind::single || machine.ranks == 1,
        "sharding.strategy single is for one rank, and there are {}; choose ddp", machine.ranks);
  check(options.shard_size == 0 || has_hsdp(options), "sharding.shard_size is for hsdp, not {}",
        strategy);
  check(options.shard_size >= 0 && (options.shard_size == 0 || ranks % options.shard_size == 0),
        "sharding.shard_size {} does not divide the {} ranks into equal groups", options.shard_size,
        ranks);
  const int experts = options.expert_parallel;
  check(experts >= 1 && batch_ranks(options, machine.ranks) % experts == 0,
        "sharding.expert_parallel {} does not divide the {} ranks into equal groups", experts,
        batch_ranks(options, machine.ranks));
  check(options.shard_size % inner_ranks(options) == 0 || options.context_parallel == 1,
        "sharding.shard_size {} is no multiple of sharding.context_parallel {} x "
        "sharding.expert_parallel {}: these ranks belong to one replica",
        options.shard_size, options.context_parallel, experts);
  check(
      options.shard_size % experts == 0,
      "sharding.shard_size {} is no multiple of sharding.expert_parallel {}: the ranks that share "
      "out experts belong to one replica",
      options.shard_size, experts);
  check(options.experts.pieces >= 1 &&
            std::has_single_bit(static_cast<std::uint64_t>(options.experts.pieces)),
        "sharding.expert_pieces {} is no power of two", options.experts.pieces);
  check(options.live_gathers >= 1, "sharding.live_gathers is {}; expected at least 1",
        options.live_gathers);
  check(options.master_dtype == DType::f32 || options.master_dtype == DType::bf16,
        "masters are f32 or bf16, not {}", name_of(options.master_dtype));
  check(options.micro_batches >= 1, "a step has {} micro-batches; expected at least 1",
        options.micro_batches);
  check(options.pipeline_chunks >= 1 &&
            (options.pipeline_chunks == 1 || options.pipeline_parallel > 1),
        "sharding.pipeline_chunks {} is for several stages; set sharding.pipeline_parallel",
        options.pipeline_chunks);
  check(options.pipeline_stages.empty() || options.pipeline_parallel > 1,
        "sharding.pipeline_stages '{}' is for several stages; set sharding.pipeline_parallel",
        options.pipeline_stages);
  check_rule(rule_for_the_rest(options), "sharding.");
  check_rules(options);
  check_gradient_dtype(options);
  if (options.elastic) check_elastic(options, batch_ranks(options, machine.ranks));
  check_grid(options);
  if (options.context_parallel > 1) check_context(options);
  placements_of(options, mesh_of(options, machine), machine.device);  // checks the groups
}

int placement_of(const ShardingOptions& options, const Parameter& parameter) {
  const auto first = options.rules.begin(), end = options.rules.end();
  const auto rule = std::find_if(first, end, [&](const PlacementRule& one) {
    return matches_pattern(one.pattern, parameter.name());
  });
  const auto number = rule == end ? 0 : static_cast<int>(rule - first) + 1;
  const auto each = static_cast<int>(options.rules.size()) + 1;
  const bool has_experts = options.expert_parallel > 1;
  return number + (parameter.stacked() && has_experts ? each : 0) +
         static_cast<int>(form_of(parameter)) * each * (has_experts ? 2 : 1);
}

}  // namespace tessera
