// ShardingOptions: the settings of a training run that concern sharding.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/expert_exchange.h"
#include "autograd/parameter.h"
#include "runtime/device.h"
#include "runtime/dtype.h"
#include "runtime/enum_names.h"
#include "sharding/plan/pipeline_schedule.h"
#include "sharding/plan/tensor_traffic.h"

namespace tessera {

enum class StrategyKind { single, ddp, zero1, zero2, zero3, fsdp, hsdp };

template <>
inline constexpr EnumNames<StrategyKind> kEnumNames<StrategyKind> = {
    "strategy", {"single", "ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp"}};

inline std::string_view name_of(StrategyKind kind) {
  return enum_name(kind);
}
/// Raises Error that lists the names.
inline StrategyKind strategy_from_name(std::string_view name) {
  return enum_from_name<StrategyKind>(name);
}

/// The state that moves from a GPU to host memory; see docs/sharding_variations.md.
enum class Offload { none, optimizer, all };

template <>
inline constexpr EnumNames<Offload> kEnumNames<Offload> = {"offload", {"none", "optimizer", "all"}};

inline std::string_view name_of(Offload offload) {
  return enum_name(offload);
}
/// Raises Error that lists the names.
inline Offload offload_from_name(std::string_view name) {
  return enum_from_name<Offload>(name);
}

/// Places the parameters with matching names under another strategy than the rest.
struct PlacementRule {
  /// Compared with the whole name of a parameter; '*' stands for any run of characters.
  std::string pattern;
  StrategyKind strategy = StrategyKind::ddp;
  /// For fsdp and hsdp, as ShardingOptions::flatten_parameters.
  bool flatten_parameters = false;
  /// These replace the options of the same names; without a value the option stays as it is.
  std::optional<int> reshard_group = {};
  std::optional<DType> compute_dtype = {};
  std::optional<DType> reduce_dtype = {};
  std::optional<Offload> offload = {};

  bool operator==(const PlacementRule&) const = default;
};

/// Rules from a text such as "*.experts.* -> hsdp, *.ln_* -> ddp". "fsdp_flat" and "hsdp_flat"
/// stand for flattened parameters. Settings may follow the strategy:
/// "*.head.* -> fsdp reshard_after_forward=false reduce_dtype=bf16". Raises Error on another form.
std::vector<PlacementRule> parse_placement_rules(std::string_view text);
/// The text that parse_placement_rules reads to the same rules.
std::string to_string(const std::vector<PlacementRule>& rules);
/// The part of that text that follows the arrow: "fsdp_flat reduce_dtype=bf16".
std::string recipe_of(const PlacementRule& rule);

/// "true", "false" or a number of ranks as ShardingOptions::reshard_group: 0, 1, or the number.
/// Empty for any other text.
std::optional<int> parse_reshard(std::string_view text);
/// The text that parse_reshard reads to the same value.
std::string reshard_text(int reshard_group);

/// How ranks that share out the tokens of rows exchange keys and values: those of all heads of a layer at
/// once, or of one head of keys at a time, while attention computes the one before.
enum class KeyExchange { gather, heads };
template <>
inline constexpr EnumNames<KeyExchange> kEnumNames<KeyExchange> = {"context exchange",
                                                                   {"gather", "heads"}};

struct ShardingOptions {
  StrategyKind strategy = StrategyKind::single;
  /// fsdp and hsdp: slices of each bucket as one vector (FSDP1), not of every tensor (FSDP2).
  bool flatten_parameters = false;
  /// hsdp: ranks that share one replica. 0: the ranks of a node if there are several nodes, or half
  /// of the ranks if there is one; in both cases a power of two, so that sums have ddp's bits.
  int shard_size = 0;
  /// Neighbouring ranks that share out the experts of each layer, each expert whole. The number of
  /// ranks is a multiple of this. 1: experts are placed like all other parameters.
  int expert_parallel = 1;
  /// For expert parallelism. With `fast`, or with several pieces, bits depend on the choice.
  ExpertChoices experts = {};
  /// Neighbouring ranks that share out the channels of every layer, its heads and the vocabulary.
  int tensor_parallel = 1;
  RowExchange row_exchange = RowExchange::together;
  /// Ranks that share out the tokens of every row. For parameters they are data ranks.
  int context_parallel = 1;
  KeyExchange key_exchange = KeyExchange::gather;
  /// Stages of the model, each on the ranks of one data-parallel job.
  int pipeline_parallel = 1;
  PipelineSchedule pipeline_schedule = PipelineSchedule::one_forward_one_backward;
  /// Stages of each rank of the pipeline; several are for the schedule `interleaved`.
  int pipeline_chunks = 1;
  /// See cut_stages (stages.h).
  std::string pipeline_stages = "";
  /// Sums that tensor or context ranks divide are formed as this many parts, a power of two, which
  /// are added in a binary tree. So they have the same bits for all numbers of ranks that divide
  /// it. 0: as many parts as ranks.
  int grid = 0;
  /// Exceptions from `strategy`. The first rule that matches a parameter's name places it.
  std::vector<PlacementRule> rules = {};
  /// See make_buckets.
  std::string buckets = "unit";
  /// zero3, fsdp, hsdp: the number of ranks over which a bucket is sharded between forward and
  /// backward. 0: all ranks that share it; 1: it stays gathered; a divisor k: groups of k ranks
  /// (not for zero3).
  int reshard_group = 0;
  /// zero3, fsdp, hsdp: how many inner buckets may be gathered at a time; 1 means no prefetching.
  int live_gathers = 2;
  bool prefetch_in_forward = true;
  bool prefetch_in_backward = true;
  /// Forward and backward passes per optimizer step.
  int micro_batches = 1;
  /// With several micro-batches: reduce after each (true), or keep whole gradients on every rank
  /// and reduce their sum at the end (false): less traffic, more memory, other rounding.
  bool reduce_every_micro_batch = true;
  /// hsdp with several micro-batches that are each reduced: sum across the replicas only after the
  /// last one. The slow links between nodes then carry one sum per step. It rounds differently.
  bool sum_replicas_once = false;
  /// The micro-batches of all ranks are added in one binary tree. Micro-batch i of rank r is leaf
  /// i * ranks + r. So sums have the same bits on any number of ranks that divides the number of
  /// leaves. Ranks and micro_batches are powers of two, and every micro-batch is reduced in f32.
  bool elastic = false;
  /// The dtype that parameters are gathered and computed in: f32, bf16 or f16.
  DType compute_dtype = DType::f32;
  /// The dtype of the masters of trained parameters: f32, or bf16, which only an optimizer that
  /// rounds at random can train.
  DType master_dtype = DType::f32;
  /// The dtype that gradients are held and summed in: f32, or bf16 for one micro-batch that is computed in
  /// bf16. They are then sent in bf16, too.
  DType gradient_dtype = DType::f32;
  /// The dtype that gradients are sent in. (Sums over ranks are formed in f32 in any case.)
  DType reduce_dtype = DType::f32;
  /// `all` is for zero3, fsdp and hsdp. On a CPU it changes nothing: there is no other memory.
  Offload offload = Offload::none;
  /// How many integers the ranks add up once per step, in addition to the norm and the loss. A
  /// mixture of experts has one for each expert of each layer.
  std::int64_t counters = 0;
  /// Steps are watched: the ranks combine the readings of every unit (tools/watch/step_watch.h).
  bool watches = false;
  /// Largest activations of a unit that the ranks combine (autograd/activation_watch.h); 0: none.
  std::int64_t maxima_per_unit = 0;
  /// Largest magnitudes of tensors that are rounded to 8 bits, which the ranks combine in every step
  /// (autograd/fp8.h); 0: none.
  std::int64_t rounded_tensors = 0;
  /// Numbers of a loss that the ranks add up: itself, and means that belong to it.
  std::int64_t loss_numbers = 1;
  /// Elements of the residual stream of a step's whole batch, which travel between stages.
  std::int64_t activations = 0;
  /// Counts of experts that travel between stages next to each message; 0: none. A balance of the loads of a
  /// micro-batch in all layers needs those of every stage.
  std::int64_t stage_counters = 0;
  /// Experts that compute a token in a layer; 0: all.
  int experts_per_token = 0;
  /// Context parallelism: the keys and values that attention exchanges.
  struct KeysAndValues {
    /// Elements of one layer in a step, of all rows.
    std::int64_t elements = 0;
    /// For each layer, how often its forward pass runs in a micro-batch: twice if backward computes it
    /// again.
    std::vector<int> forward_passes = {};
  } keys_and_values = {};
  /// Tensor parallelism: the rows that ranks exchange. `rows` counts those of a whole step.
  TensorTraffic tensor_traffic = {};
  /// The dtype in which an optimizer exchanges the matrices of a parameter, for one that needs them
  /// whole (whole_matrices.h); no value for a parameter that is updated element by element. Empty: all are.
  std::function<std::optional<DType>(const Parameter&)> matrix_dtype = {};
};

/// Whether the strategy itself or one of the rules is hsdp.
bool has_hsdp(const ShardingOptions& options);
/// Whether the model, or the part of it that a rule names, is computed in `dtype`.
bool computes_in(const ShardingOptions& options, DType dtype);

/// The parts of a sum that tensor ranks divide: the grid, or as many as ranks.
int sum_parts_of(const ShardingOptions& options);
/// Ranks that share parameters, gradients and optimizer state by the strategy. The product with the
/// ranks of tensor and pipeline parallelism is `ranks`. Raises Error, naming the factors, if these do
/// not divide `ranks`.
int data_ranks(const ShardingOptions& options, int ranks);
/// Data ranks that compute different rows of a batch: those with one place among context ranks.
int batch_ranks(const ShardingOptions& options, int ranks);

/// The job that a plan is made for.
struct Machine {
  int ranks = 1;
  /// 0: all ranks are on one node. 1: nodes say nothing about neighbours.
  int ranks_per_node = 0;
  Device device = {DeviceType::cuda, 0};
};

}  // namespace tessera
