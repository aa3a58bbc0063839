// Random combinations of options against ddp and against the footprint.
//
// Each case draws a model, a strategy and all its options. Its losses, norms and weights must have
// ddp's bits, under elastic those of ddp on one rank. Its memory and traffic must be the footprint's,
// to the byte. The cases are the
// same in every run. TESSERA_RANDOM_CASES=10000 in the environment runs more of them; a mismatch
// prints the case and its number, and TESSERA_RANDOM_FIRST=NUMBER begins there.
#include <fmt/format.h>

#include <bit>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <thread>

#include "runtime/random.h"
#include "tests/sharding/toy_run.h"

namespace tessera {

using test::Findings;
using test::ToyNet;
using test::Trained;

namespace {

/// Draws for one case: addressed by the number of the case, so each can be run alone.
class Draws {
 public:
  explicit Draws(std::uint64_t number) : random_(/*seed=*/11, "random options", number) {}

  int below(int bound) {
    return static_cast<int>(random_.below(next_++, static_cast<std::uint64_t>(bound)));
  }
  bool coin() { return below(2) == 0; }
  template <typename T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[below(static_cast<int>(values.size()))];
  }

 private:
  RandomStream random_;
  std::uint64_t next_ = 0;
};

struct Case {
  int ranks = 1;
  int layers = 1;
  bool tied = true;
  /// Every other layer has experts. Ranks may share them out: options.expert_parallel.
  bool mixtures = false;
  /// Frozen parameters, and the units that recompute, by number.
  std::vector<int> frozen;
  std::vector<bool> recomputes;
  /// Evaluate after each step: the next step finds other buckets in the slots then.
  bool evaluates = false;
  /// Update by groups of AdamW and SGD, or of AdamW and Muon, whose matrices travel in this dtype.
  bool groups = false;
  std::optional<DType> muon = {};
  /// Delay the side streams by random times.
  bool delays = false;
  ShardingOptions options;
};

bool is_fsdp(StrategyKind kind) {
  return kind == StrategyKind::fsdp || kind == StrategyKind::hsdp;
}

/// A row of hsdp's mesh that has ddp's sums: a power of two that divides the ranks.
int draw_shard_size(Draws& draws, int ranks) {
  int size = 1 << draws.below(4);
  while (ranks % size != 0) size /= 2;
  return size;
}

std::vector<PlacementRule> draw_rules(Draws& draws) {
  std::vector<PlacementRule> rules;
  for (int i = draws.one_of({0, 0, 0, 1, 2}); i > 0; --i) {
    const auto kind = test::kSeveralRanks[draws.below(std::size(test::kSeveralRanks))];
    rules.push_back({.pattern = draws.one_of<const char*>(
                         {"*.bias", "*.up", "layer.*", "layer.1.*", "norm.*", "table", "*"}),
                     .strategy = kind,
                     .flatten_parameters = is_fsdp(kind) && draws.coin()});
  }
  return rules;
}

/// Gives some rules settings of their own.
void draw_settings(Draws& draws, ShardingOptions& options, int shards, bool hsdp) {
  // A bias is added in the dtype of its matrix.
  const bool cuts_layers = std::any_of(
      options.rules.begin(), options.rules.end(),
      [](const PlacementRule& rule) { return rule.pattern == "*.bias" || rule.pattern == "*.up"; });
  for (PlacementRule& rule : options.rules) {
    if (draws.coin()) continue;
    const bool gathers = is_fsdp(rule.strategy) || rule.strategy == StrategyKind::zero3;
    if (gathers && draws.coin()) {
      rule.reshard_group = draws.one_of({0, 1, 2, 4});
      const bool fits = is_fsdp(rule.strategy) && shards % std::max(1, *rule.reshard_group) == 0;
      if (*rule.reshard_group > 1 && !fits) rule.reshard_group = 1;
    }
    if (!cuts_layers && draws.coin()) {
      rule.compute_dtype = draws.one_of({DType::f32, DType::bf16, DType::f16});
    }
    if (!hsdp && draws.coin()) rule.reduce_dtype = draws.one_of({DType::f32, DType::bf16});
    if (draws.coin()) {
      rule.offload = draws.one_of({Offload::none, Offload::optimizer, Offload::all});
      if (rule.offload == Offload::all && !gathers) rule.offload = Offload::optimizer;
    }
  }
}

ShardingOptions draw_options(Draws& draws, int ranks) {
  ShardingOptions options;
  options.strategy = draws.one_of({StrategyKind::zero1, StrategyKind::zero2, StrategyKind::zero3,
                                   StrategyKind::fsdp, StrategyKind::fsdp, StrategyKind::hsdp,
                                   StrategyKind::hsdp});
  options.flatten_parameters = is_fsdp(options.strategy) && draws.coin();
  options.rules = draw_rules(draws);
  const Machine machine = {.ranks = ranks, .device = test::device()};
  bool hsdp = options.strategy == StrategyKind::hsdp;
  for (const PlacementRule& rule : options.rules) hsdp |= rule.strategy == StrategyKind::hsdp;
  if (hsdp) options.shard_size = draw_shard_size(draws, ranks);
  const int shards = mesh_of(options, machine).size_along({"shard"});
  options.buckets = draws.one_of<const char*>({"unit", "unit", "200", "1000", "100000"});
  options.reshard_group = draws.one_of({0, 0, 1, 2, 3, 4, shards});
  const bool fits = is_fsdp(options.strategy) && shards % std::max(1, options.reshard_group) == 0;
  if (options.reshard_group > 1 && !fits) options.reshard_group = 0;
  options.live_gathers = draws.one_of({1, 2, 2, 3, 4, 9});
  options.prefetch_in_forward = draws.below(3) > 0;
  options.prefetch_in_backward = draws.below(3) > 0;
  options.micro_batches = draws.one_of({1, 1, 2, 3});
  options.reduce_every_micro_batch = draws.coin();
  options.compute_dtype = draws.one_of({DType::f32, DType::f32, DType::bf16, DType::f16});
  // hsdp rounds a 16-bit sum twice, in the row and across; ddp rounds it once.
  if (!hsdp) options.reduce_dtype = draws.one_of({DType::f32, DType::f32, DType::bf16});
  draw_settings(draws, options, shards, hsdp);
  return options;
}

/// Half of the cases have experts, which ranks share out in most of them.
void draw_experts(Draws& draws, Case& drawn) {
  ShardingOptions& options = drawn.options;
  drawn.mixtures = drawn.layers > 0 && draws.coin();
  const int ranks = draws.one_of({1, 2, 2, 4});
  if (!drawn.mixtures || drawn.ranks % ranks != 0 || options.shard_size % ranks != 0) return;
  options.expert_parallel = ranks;
  // Groups of ranks that keep a bucket must divide the ranks along the other axes, too.
  const auto fits = [&](int group) {
    const auto divides = [&](int shards) {
      return group >= shards / ranks || shards / ranks % std::max(1, group) == 0;
    };
    return divides(drawn.ranks) && divides(replica_size(mesh_of(options, {.ranks = drawn.ranks})));
  };
  if (!fits(options.reshard_group)) options.reshard_group = 0;
  // As hsdp does, ranks that share out experts round a 16-bit sum twice.
  if (ranks > 1) options.reduce_dtype = DType::f32;
  for (PlacementRule& rule : options.rules) {
    if (rule.reshard_group && !fits(*rule.reshard_group)) rule.reshard_group = 0;
    if (ranks > 1) rule.reduce_dtype = std::nullopt;
  }
  if (draws.below(3) > 0) return;
  options.experts = {.sums = draws.one_of({ExpertSums::exact, ExpertSums::fast}),
                     .copies = draws.one_of({ExpertCopies::each_expert, ExpertCopies::each_rank}),
                     .pieces = draws.one_of({1, 2, 4})};
}

/// Micro-batches in one tree over all ranks, where the ranks allow it.
void draw_elastic(Draws& draws, Case& drawn) {
  ShardingOptions& options = drawn.options;
  const int micro_batches = draws.one_of({1, 2, 2, 4, 4, 8});
  if (!std::has_single_bit(static_cast<unsigned>(drawn.ranks)) || draws.coin()) return;
  options.elastic = true;
  options.experts = {.copies = options.experts.copies};
  options.micro_batches = micro_batches;
  options.reduce_every_micro_batch = true;
  options.reduce_dtype = DType::f32;
  for (PlacementRule& rule : options.rules) rule.reduce_dtype = std::nullopt;
}

/// Some of the cases whose sums are rounded once hold their gradients in bf16.
void draw_gradient_dtype(Draws& draws, Case& drawn) {
  ShardingOptions& options = drawn.options;
  const auto is_hsdp = [](const PlacementRule& rule) {
    return rule.strategy == StrategyKind::hsdp;
  };
  const bool rounds_twice = options.strategy == StrategyKind::hsdp || options.expert_parallel > 1 ||
                            std::any_of(options.rules.begin(), options.rules.end(), is_hsdp);
  if (rounds_twice || options.elastic || draws.below(3) > 0) return;
  options.micro_batches = 1;
  options.compute_dtype = options.gradient_dtype = DType::bf16;
  for (PlacementRule& rule : options.rules) {
    rule.compute_dtype.reset();
    rule.reduce_dtype.reset();
  }
  drawn.groups = true;  // their optimizers read bf16
}

Case draw_case(std::uint64_t number) {
  Draws draws(number);
  Case drawn;
  drawn.ranks = draws.one_of({1, 2, 3, 4, 4, 5, 6, 8, 8});
  drawn.layers = draws.one_of({0, 1, 2, 3, 4, 5, 7});
  drawn.tied = draws.coin();
  drawn.evaluates = draws.below(4) == 0;
  drawn.delays = draws.below(4) == 0;
  for (int i = draws.below(5) == 0 ? draws.below(12) : draws.below(3); i > 0; --i) {
    drawn.frozen.push_back(draws.below(30));
  }
  for (int i = 0; i < 4; ++i) drawn.recomputes.push_back(draws.coin());
  drawn.options = draw_options(draws, drawn.ranks);
  draw_experts(draws, drawn);
  draw_elastic(draws, drawn);
  drawn.groups = draws.coin();
  drawn.muon = draws.one_of<std::optional<DType>>({std::nullopt, DType::f32, DType::bf16});
  draw_gradient_dtype(draws, drawn);
  if (!drawn.groups) drawn.muon.reset();
  if (drawn.muon) drawn.options.matrix_dtype = test::toy_matrices(*drawn.muon);
  return drawn;
}

std::string to_string(const Case& drawn) {
  const ShardingOptions& o = drawn.options;
  std::string recomputes;
  for (const bool here : drawn.recomputes) recomputes += here ? '1' : '0';
  return fmt::format(
      "{}{}, {} ranks, {} layers, tied {}, rules [{}], shard_size {}, buckets '{}', "
      "reshard_group {}, live_gathers {}, prefetch {}/{}, micro_batches {}, every {}, compute {}, "
      "gradients {}, reduce {}, frozen [{}], recomputes {}, evaluates {}, delays {}, mixtures {}, "
      "expert_parallel {} ({}, {}, {} pieces), elastic {}, groups {}, muon {}",
      name_of(o.strategy), o.flatten_parameters ? " flat" : "", drawn.ranks, drawn.layers,
      drawn.tied, to_string(o.rules), o.shard_size, o.buckets, o.reshard_group, o.live_gathers,
      o.prefetch_in_forward, o.prefetch_in_backward, o.micro_batches, o.reduce_every_micro_batch,
      name_of(o.compute_dtype), name_of(o.gradient_dtype), name_of(o.reduce_dtype),
      fmt::join(drawn.frozen, ","), recomputes, drawn.evaluates, drawn.delays, drawn.mixtures,
      o.expert_parallel, enum_name(o.experts.sums), enum_name(o.experts.copies), o.experts.pieces,
      o.elastic, drawn.groups, drawn.muon ? name_of(*drawn.muon) : "none");
}

/// Freezes and checkpoints as the case says; one parameter at least stays trained.
void prepare(ToyNet& net, const Case& drawn) {
  std::vector<Parameter> parameters;
  for (const auto& unit : net.units) {
    for (const Parameter& parameter : unit->parameters()) parameters.push_back(parameter);
  }
  for (const int i : drawn.frozen) {
    parameters[static_cast<std::size_t>(i) % parameters.size()].set_trainable(false);
  }
  // A unit at both ends that is trained at its end only is the known limit of footprint_of.
  if (drawn.tied && !net.table.trainable()) {
    net.norm_weight.set_trainable(false);
    net.norm_bias.set_trainable(false);
  }
  const bool any_trained = std::any_of(parameters.begin(), parameters.end(),
                                       [](const Parameter& p) { return p.trainable(); });
  if (!any_trained) parameters.back().set_trainable(true);
  for (std::size_t i = 1; i < net.units.size(); ++i) {
    net.units[i]->set_checkpointing(drawn.recomputes[i % drawn.recomputes.size()]);
  }
}

void delay_communication(int rank) {
  for (const std::string stream : {"communication", "rows of experts"}) {
    const RandomStream random(/*seed=*/13, "delays of " + stream, static_cast<std::uint64_t>(rank));
    context().side_stream(stream).set_delay([random, calls = std::uint64_t{0}]() mutable {
      const std::uint64_t microseconds = random.below(calls++, 400);
      if (microseconds < 200) std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
    });
  }
}

Trained train(const Case& drawn, const ShardingOptions& options, Findings& findings) {
  return test::train({.ranks = drawn.ranks,
                      .layers = drawn.layers,
                      .tied = drawn.tied,
                      .mixtures = drawn.mixtures,
                      .steps = 3,
                      .groups = drawn.groups,
                      .evaluates = drawn.evaluates,
                      .prepare = [&](ToyNet& net) { prepare(net, drawn); },
                      .before_steps =
                          [&](int rank) {
                            if (drawn.delays) delay_communication(rank);
                          }},
                     options, findings);
}

/// The same training under ddp, in the same dtypes. Only choices that change bits need the same expert ranks.
ShardingOptions ddp_like(const ShardingOptions& options) {
  ShardingOptions ddp = options;
  ddp.strategy = StrategyKind::ddp;
  ddp.flatten_parameters = false;
  ddp.shard_size = 0;
  if (!changes_sums(options.experts)) ddp.expert_parallel = 1;
  ddp.reshard_group = 0;
  for (PlacementRule& rule : ddp.rules) {
    rule = {.pattern = rule.pattern,
            .strategy = StrategyKind::ddp,
            .compute_dtype = rule.compute_dtype,
            .reduce_dtype = rule.reduce_dtype};
  }
  return ddp;
}

/// Everything that is wrong about a case, or an empty text.
std::string mismatches_of(const Case& drawn) {
  Findings findings;
  std::vector<std::string> mismatches;
  try {
    Case reference = drawn;
    reference.options = ddp_like(drawn.options);
    if (drawn.options.elastic) {  // the bits of one rank
      reference.options.micro_batches *= drawn.ranks;
      reference.ranks = 1;
    }
    const Trained expected = train(reference, reference.options, findings);
    const Trained trained = train(drawn, drawn.options, findings);
    if (trained.losses != expected.losses) mismatches.push_back("losses differ from ddp's");
    if (trained.norms != expected.norms) mismatches.push_back("norms differ from ddp's");
    if (trained.weights != expected.weights) mismatches.push_back("weights differ from ddp's");
  } catch (const std::exception& error) {
    mismatches.push_back(fmt::format("raises: {}", error.what()));
  }
  for (const std::string& wrong : findings.wrong()) mismatches.push_back(wrong);
  return fmt::format("{}", fmt::join(mismatches, "; "));
}

int environment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

}  // namespace

TEST_CASE("random options: ddp's bits and the footprint's bytes") {
  const int first = environment("TESSERA_RANDOM_FIRST", 0);
  const int cases = environment("TESSERA_RANDOM_CASES", test::kOnGpu ? 4 : 60);
  int wrong = 0;
  for (int number = first; number < first + cases && wrong < 10; ++number) {
    const Case drawn = draw_case(static_cast<std::uint64_t>(number));
    const std::string mismatches = mismatches_of(drawn);
    if (mismatches.empty()) continue;
    ++wrong;
    FAIL_CHECK("case " << number << ": " << to_string(drawn) << "\n  " << mismatches);
  }
  CHECK(wrong == 0);
}

}  // namespace tessera
