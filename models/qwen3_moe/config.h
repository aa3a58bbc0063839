// Hyperparameters of Qwen3-MoE: presets, checks, and config.json.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "models/presets.h"
#include "models/rope_config.h"
#include "models/transformer_shape.h"

namespace tessera {

/// The defaults are Qwen3-30B-A3B's.
struct Qwen3MoeConfig {
  std::int64_t vocab_size = 151936;
  std::int64_t context = 40960;
  std::int64_t layers = 48;
  std::int64_t heads = 32;
  /// Heads of keys and values, a divisor of `heads`.
  std::int64_t kv_heads = 4;
  /// 0: width / heads.
  std::int64_t head_size = 128;
  std::int64_t width = 2048;
  /// Channels inside the feed-forward layers without experts.
  std::int64_t mlp_width = 6144;
  std::int64_t experts = 128;
  std::int64_t experts_per_token = 8;
  /// Channels inside an expert.
  std::int64_t expert_width = 768;
  /// Whether a token's weights are divided by their sum.
  bool normalized_weights = true;
  /// Layer i has experts if (i + 1) is a multiple of `experts_every` and i is not one of
  /// `dense_layers`.
  std::int64_t experts_every = 1;
  std::vector<std::int64_t> dense_layers;
  double norm_epsilon = 1e-6;
  RopeConfig rope = {.theta = 1e6};
  /// Whether the head's weight is the embedding's.
  bool tied = false;
  /// The embedding of this token gets no gradient from lookups, as Transformers pads batches.
  std::optional<std::int64_t> padding_id = std::nullopt;
  bool attention_bias = false;
  /// These models have none; a member of every family. Must be 0.
  double dropout = 0.0;

  bool has_experts(std::int64_t layer) const;
};

/// "qwen3-30b-a3b", and "qwen3-moe-mini" (laptop size: 4 layers, context 256, tied).
const Presets<Qwen3MoeConfig>& qwen3_moe_presets();

/// From a Hugging Face config.json. Raises Error if an entry is missing or not supported.
Qwen3MoeConfig qwen3_moe_config_from(const nlohmann::json& config);
/// The Hugging Face config.json, in the dialect of Transformers 4.x, which 5.x reads too.
nlohmann::json to_json(const Qwen3MoeConfig& config);

/// Raises Error if a size is out of bounds, or sizes do not suit each other.
void check_config(const Qwen3MoeConfig& config);

/// The configuration must have passed check_config.
TransformerShape shape_of(const Qwen3MoeConfig& config);

}  // namespace tessera
