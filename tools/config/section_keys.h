// The keys of each section of a configuration; keys.h joins them.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/config/key_types.h"

namespace tessera {

// The bounds of sizes: far above every use, and far below an overflow of their products with the
// size of an element. tools/train/size_model.cpp bounds the products themselves.
constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;
constexpr std::int64_t kMostSteps = std::int64_t{1} << 40;
constexpr std::int64_t kMostRanks = std::int64_t{1} << 20;
constexpr std::int64_t kMostSeed = std::int64_t{1} << 62;

constexpr Bounds kFromZero = {.least = 0.0};
constexpr Bounds kAboveZero = {.least = 0.0, .least_excluded = true};
constexpr Bounds kShare = {.least = 0.0, .most = 1.0};
constexpr Bounds kBelowOne = {.least = 0.0, .most = 1.0, .most_excluded = true};

std::vector<Key> model_keys(ModelConfig& model);
std::vector<Key> adapter_keys(AdapterConfig& adapter);
std::vector<Key> moe_keys(MoeConfig& moe);
std::vector<Key> data_keys(DataConfig& data);
std::vector<Key> optimizer_keys(OptimizerConfig& optimizer);
std::vector<Key> sharding_keys(ShardingConfig& sharding);
std::vector<Key> runtime_keys(RuntimeConfig& runtime);
std::vector<Key> kernels_keys(KernelsConfig& kernels);
std::vector<Key> train_keys(TrainConfig& train);
std::vector<Key> distill_keys(Distillation& distill);
std::vector<Key> preference_keys(PreferenceConfig& preference);
std::vector<Key> sample_keys(SampleConfig& sample);

}  // namespace tessera
