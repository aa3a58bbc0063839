// The configuration of a training run, as typed values.
//
// The initial values are the defaults. The table in tools/config/keys.h has the meaning of every
// key, its values, and how it is read and written.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/checkpointing.h"
#include "autograd/fp8_scales.h"
#include "kernels/attention/backend.h"
#include "kernels/matmul/options.h"
#include "kernels/rope/op.h"
#include "models/adapters.h"
#include "models/balance.h"
#include "optim/schedule.h"
#include "optim/update_scale.h"
#include "runtime/device.h"
#include "runtime/dtype.h"
#include "runtime/enum_names.h"
#include "sharding/comm/options.h"
#include "sharding/plan/options.h"
#include "tools/data/batch_sizes.h"
#include "tools/data/distillation.h"
#include "tools/data/mixture_kind.h"
#include "tools/data/row_kind.h"

namespace tessera {

enum class OptimizerKind { adamw, sgd, muon };
template <>
inline constexpr EnumNames<OptimizerKind> kEnumNames<OptimizerKind> = {"optimizer",
                                                                       {"adamw", "sgd", "muon"}};

/// The passes in which the next bucket is gathered while this one computes.
enum class Prefetch { both, forward, backward, none };
template <>
inline constexpr EnumNames<Prefetch> kEnumNames<Prefetch> = {
    "prefetch", {"both", "forward", "backward", "none"}};

/// The micro-batches after which gradients are reduced over ranks.
enum class ReduceAfter { every_micro_batch, last_micro_batch };
template <>
inline constexpr EnumNames<ReduceAfter> kEnumNames<ReduceAfter> = {
    "reduction", {"every_micro_batch", "last_micro_batch"}};

/// The answer to a loss or gradient norm that is not finite.
enum class OnNonfinite { stop, explain, skip, rollback };
template <>
inline constexpr EnumNames<OnNonfinite> kEnumNames<OnNonfinite> = {
    "answer", {"stop", "explain", "skip", "rollback"}};

/// The loss: of each token, perhaps with a teacher's answers (tools/data/soft_targets.h); or of pairs of answers
/// (kernels/preference/op.h).
enum class Objective { next_token, distill, dpo, ipo, simpo };
template <>
inline constexpr EnumNames<Objective> kEnumNames<Objective> = {
    "objective", {"next_token", "distill", "dpo", "ipo", "simpo"}};

/// `automatic`: a bar on a terminal of this process, lines otherwise.
enum class ProgressMode { automatic, bar, lines };
template <>
inline constexpr EnumNames<ProgressMode> kEnumNames<ProgressMode> = {"progress",
                                                                     {"auto", "bar", "lines"}};

/// Steps first to last; none if `last` is 0.
struct StepRange {
  std::int64_t first = 0;
  std::int64_t last = 0;

  bool contains(std::int64_t step) const { return first <= step && step <= last; }
};

struct ModelConfig {
  std::string preset = "gpt2-mini";
  // 0: the preset's.
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t width = 0;
  std::int64_t context = 0;
  std::int64_t vocab_size = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_size = 0;
  std::int64_t mlp_width = 0;
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t expert_width = 0;
  std::int64_t attention_chunk = 0;
  /// No value: auto.
  std::optional<RopeAngles> rope_angles;
  double dropout = 0.0;
  std::filesystem::path init_from;
  std::string frozen;
};

struct AdapterConfig : AdapterOptions {
  std::filesystem::path path;
};

struct MoeConfig {
  /// No value: auto.
  std::optional<Balance> balance;
  double bias_rate = 1e-3;
  double loss_coefficient = 1e-3;
  double z_loss = 0.0;
  bool force_balance = false;
};

/// An entry of data.train: tokens, and their part in a mixture.
struct TrainingSource {
  std::filesystem::path path;
  double weight = 1.0;
  std::int64_t from_step = 1;
  /// 0: to the end.
  std::int64_t until_step = 0;
  bool operator==(const TrainingSource&) const = default;
};

/// The value of data.train: one path, or a mixture.
struct TrainingData {
  TrainingData() = default;
  template <typename Path>
  requires std::convertible_to<Path, std::filesystem::path> TrainingData(Path&& path)
      : sources{{.path = std::filesystem::path(std::forward<Path>(path))}} {
    if (sources[0].path.empty()) sources.clear();
  }

  bool empty() const { return sources.empty(); }
  void clear() { sources.clear(); }
  /// The first source has the tokenizer and the manifest.
  std::filesystem::path first() const {
    return sources.empty() ? std::filesystem::path() : sources.front().path;
  }
  bool operator==(const TrainingData&) const = default;

  std::vector<TrainingSource> sources;
};

/// An entry of data.validation.
struct ValidationSource {
  std::string name;
  std::filesystem::path path;
  bool operator==(const ValidationSource&) const = default;
};

struct DataConfig {
  TrainingData train;
  MixtureKind mixture = MixtureKind::by_tokens;
  std::filesystem::path val;
  std::vector<ValidationSource> validation;
  std::int64_t batch_size = 8;
  /// 0: batch_size says it.
  std::int64_t rows_per_rank = 0;
  std::int64_t sequence_length = 128;
  std::int64_t accumulation_steps = 1;
  /// A number, or a token's spelling. Empty: rows are not cut.
  std::string document_token;
  std::filesystem::path hellaswag;
  RowKind rows = RowKind::windows;
};

/// An entry of optimizer.groups. tools/config/optimizer_groups.h has its meaning.
struct OptimizerGroupConfig {
  std::string match;
  /// The other keys by their names, as texts: {"learning_rate", "0.001"}.
  std::map<std::string, std::string> keys = {};
  bool operator==(const OptimizerGroupConfig&) const = default;
};

struct OptimizerConfig {
  OptimizerKind name = OptimizerKind::adamw;
  double learning_rate = 1e-3;
  ScheduleKind schedule = ScheduleKind::cosine;
  std::int64_t warmup_steps = 0;
  std::int64_t decay_steps = 0;
  DecayShape decay_shape = DecayShape::linear;
  std::vector<ScheduleStage> table;
  double minimum_learning_rate_ratio = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double momentum = 0.0;
  bool nesterov = false;
  double muon_momentum = 0.95;
  bool muon_nesterov = true;
  UpdateScale muon_scale = UpdateScale::match_rms_adamw;
  /// f32 or bf16.
  DType muon_ns_dtype = DType::bf16;
  /// 0: none.
  double qk_clip = 0.0;
  double clip_norm = 1.0;
  /// f32 or bf16.
  DType master_dtype = DType::f32;
  DType state_dtype = DType::f32;
  DType gradient_dtype = DType::f32;
  std::vector<OptimizerGroupConfig> groups;
  bool operator==(const OptimizerConfig&) const = default;
};

struct ShardingConfig {
  StrategyKind strategy = StrategyKind::single;
  bool flatten_parameters = false;
  std::int64_t shard_size = 0;
  std::int64_t expert_parallel = 1;
  ExpertSums expert_sums = ExpertSums::exact;
  ExpertCopies expert_copies = ExpertCopies::each_expert;
  std::int64_t expert_pieces = 1;
  std::int64_t tensor_parallel = 1;
  RowExchange tensor_exchange = RowExchange::together;
  std::int64_t context_parallel = 1;
  KeyExchange context_exchange = KeyExchange::gather;
  std::int64_t pipeline_parallel = 1;
  PipelineSchedule pipeline_schedule = PipelineSchedule::one_forward_one_backward;
  std::int64_t pipeline_chunks = 1;
  std::string pipeline_stages;
  std::int64_t grid = 0;
  std::vector<PlacementRule> rules;
  std::string buckets = "unit";
  /// sharding.reshard_after_forward, as ShardingOptions::reshard_group.
  int reshard_group = 0;
  std::int64_t live_gathers = 2;
  Prefetch prefetch = Prefetch::both;
  ReduceAfter reduce = ReduceAfter::every_micro_batch;
  bool sum_replicas_once = false;
  DType reduce_dtype = DType::f32;
  CommunicatorKind communicator = CommunicatorKind::automatic;
  bool deterministic = false;
  std::int64_t nccl_ctas = kNcclCtas;
  bool nccl_windows = false;
  CheckCollectives check_collectives = CheckCollectives::first_steps;
  /// Steps between two checks; 0: none.
  std::int64_t check_replicas = 0;
  /// Seconds.
  std::int64_t timeout = 600;
  Offload offload = Offload::none;
  CheckpointingPolicy activation_checkpointing;
};

/// The dtype that parameters and activations have where a rank computes. fp8: they are bf16, and the factors of the
/// layers' products have 8 bits (autograd/fp8.h).
struct ComputeDtype {
  DType tensors = DType::f32;
  bool fp8 = false;

  constexpr ComputeDtype(DType dtype = DType::f32) : tensors(dtype) {}  // NOLINT: any dtype but fp8
  constexpr operator DType() const { return tensors; }                  // NOLINT
  static constexpr ComputeDtype eight_bits() {
    ComputeDtype dtype = DType::bf16;
    dtype.fp8 = true;
    return dtype;
  }
};
constexpr std::string_view name_of(const ComputeDtype& dtype) {
  return dtype.fp8 ? "fp8" : name_of(dtype.tensors);
}

struct RuntimeConfig {
  /// No value: auto.
  std::optional<Device> device;
  std::int64_t ranks = 0;
  std::int64_t threads = 0;
  bool pin = false;
  bool graph = false;
  bool overlap_update = false;
  ComputeDtype compute_dtype;
  DType fp8_gradients = DType::e5m2;
  Fp8Scales fp8_scales = Fp8Scales::tensor;
  std::int64_t fp8_history = 16;
  /// No value: auto.
  std::optional<cpu::Isa> isa;
};
/// Whether tensors in 8 bits have scales that follow earlier steps, of all ranks.
inline bool has_fp8_history(const RuntimeConfig& runtime) {
  return runtime.compute_dtype.fp8 && runtime.fp8_scales == Fp8Scales::tensor;
}

struct KernelsConfig {
  AttentionBackend attention = AttentionBackend::tessera;
  CudnnOrder cudnn_order = CudnnOrder::same;
  MatmulLibrary matmul = MatmulLibrary::tessera;
  AlgorithmChoice cublaslt = AlgorithmChoice::suggested;
  SwigluChoice swiglu = SwigluChoice::automatic;
  GeluChoice gelu = GeluChoice::library;
  /// 0: the device's default.
  std::int64_t head_chunk = 0;
  bool early_launch = false;
};

/// The texts of train.sample_every.
struct SampleConfig {
  /// Empty, without a file of prompts: a line break.
  std::string prompt;
  std::filesystem::path prompts;
  std::int64_t tokens = 100;
  double temperature = 1.0;
  std::int64_t top_k = 0;
  double top_p = 1.0;
  std::int64_t seed = 0;
};

struct PreferenceConfig {
  double beta = 0.1;
  double label_smoothing = 0.0;
  double margin = 0.0;
  double nll = 0.0;
};

struct TrainConfig {
  Objective objective = Objective::next_token;
  std::int64_t steps = 1000;
  std::vector<BatchStage> batch_ramp;
  /// 0: steps says it.
  std::int64_t epochs = 0;
  std::filesystem::path dir = "runs/latest";
  std::int64_t log_every = 10;
  std::int64_t eval_every = 100;
  std::int64_t eval_batches = 20;
  /// 0: never.
  std::int64_t sample_every = 0;
  /// 0: after the last step.
  std::int64_t hellaswag_every = 0;
  std::int64_t seed = 1;
  StepRange profile;
  ProgressMode progress = ProgressMode::automatic;
  bool measure_matmul_rate = false;
  std::int64_t checkpoint_every = 1000;
  std::int64_t keep_last = 2;
  std::int64_t keep_every = 0;
  /// "auto", "never", or the path of a checkpoint or of a run folder.
  std::string resume = "auto";
  OnNonfinite on_nonfinite = OnNonfinite::stop;
  /// 0: none.
  double keep_spikes = 0.0;
  /// 0: no step.
  std::int64_t watch = 0;
  /// 0: no server.
  std::int64_t metrics_port = 0;
  /// Micro-batches of a step, on any number of ranks; 0: data.accumulation_steps on each.
  std::int64_t elastic = 0;
  /// 0: no average.
  double ema = 0.0;
  bool evaluate_ema = false;
};

struct Config {
  ModelConfig model;
  AdapterConfig adapter;
  MoeConfig moe;
  DataConfig data;
  OptimizerConfig optimizer;
  ShardingConfig sharding;
  RuntimeConfig runtime;
  KernelsConfig kernels;
  TrainConfig train;
  Distillation distill;
  PreferenceConfig preference;
  SampleConfig sample;

  /// The place that set a key: "run.yaml:12" or "command line". Keys with defaults are not listed.
  std::map<std::string, std::string, std::less<>> places;
};

/// The device of rank 0. Without a configured device: a GPU if there is one, else the CPU.
inline Device first_device(const RuntimeConfig& runtime) {
  return runtime.device.value_or(parse_device("auto").value());
}

}  // namespace tessera
