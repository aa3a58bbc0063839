// Everything that a training run can be told, as plain values.
//
// The initial values here are the defaults. What each key means, which values it allows and how it
// is read and written stands in one table, in tools/config/keys.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace tessera {

struct ModelConfig {
  std::string preset = "gpt2-mini";
  // 0: as the preset says.
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t width = 0;
  std::int64_t context = 0;
  std::int64_t vocab_size = 0;
  double dropout = 0.0;
  std::filesystem::path init_from;
  std::string frozen;
};

struct DataConfig {
  std::filesystem::path train;
  std::filesystem::path val;
  std::int64_t batch_size = 8;
  std::int64_t sequence_length = 128;
  std::int64_t accumulation_steps = 1;
};

struct OptimizerConfig {
  std::string name = "adamw";
  double learning_rate = 1e-3;
  std::string schedule = "cosine";
  std::int64_t warmup_steps = 0;
  std::int64_t decay_steps = 0;
  double minimum_learning_rate_ratio = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double momentum = 0.0;
  bool nesterov = false;
  double clip_norm = 1.0;
};

struct ShardingConfig {
  std::string strategy = "single";
  bool flatten_parameters = false;
  std::int64_t shard_size = 0;
  std::string buckets = "unit";
  std::string reshard_after_forward = "true";
  std::int64_t live_gathers = 2;
  std::string prefetch = "both";
  std::string reduce = "every_micro_batch";
  std::string reduce_dtype = "f32";
  std::string communicator = "auto";
  bool deterministic = false;
  std::string offload = "none";
  std::string activation_checkpointing = "none";
};

struct RuntimeConfig {
  std::string device = "auto";
  std::int64_t ranks = 0;
  std::int64_t threads = 0;
  std::string compute_dtype = "f32";
};

struct KernelsConfig {
  std::string attention = "tessera";
};

struct TrainConfig {
  std::int64_t steps = 1000;
  std::filesystem::path dir = "runs/latest";
  std::int64_t log_every = 10;
  std::int64_t eval_every = 100;
  std::int64_t eval_batches = 20;
  std::int64_t seed = 1;
  std::filesystem::path trace;
  std::string progress = "auto";
};

struct Config {
  ModelConfig model;
  DataConfig data;
  OptimizerConfig optimizer;
  ShardingConfig sharding;
  RuntimeConfig runtime;
  KernelsConfig kernels;
  TrainConfig train;
};

}  // namespace tessera
