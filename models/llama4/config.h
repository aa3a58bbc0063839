// Hyperparameters of Llama 4's text model: presets, checks, and config.json.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "models/presets.h"
#include "models/rope_config.h"
#include "models/transformer_shape.h"

namespace tessera {

/// The defaults are Llama-4-Scout's.
struct Llama4Config {
  std::int64_t vocab_size = 202048;
  std::int64_t context = 262144;
  std::int64_t layers = 48;
  std::int64_t heads = 40;
  /// Heads of keys and values, a divisor of `heads`.
  std::int64_t kv_heads = 8;
  /// 0: width / heads.
  std::int64_t head_size = 128;
  std::int64_t width = 5120;
  /// Channels inside the feed-forward layers without experts.
  std::int64_t mlp_width = 16384;

  std::int64_t experts = 16;
  std::int64_t experts_per_token = 1;
  /// Channels inside an expert, and inside the one that every token takes.
  std::int64_t expert_width = 8192;
  /// Layer i has experts if i + 1 is a multiple of `experts_every`, or if `expert_layers` is given
  /// and names it.
  std::int64_t experts_every = 1;
  std::optional<std::vector<std::int64_t>> expert_layers;

  /// Layer i has no rotary positions (NoPE) if i + 1 is a multiple of `nope_every`, or, if
  /// `rope_layers` is not empty, where that holds a 0. Other numbers are layers with RoPE.
  std::int64_t nope_every = 4;
  std::vector<std::int64_t> rope_layers;
  /// Layers with RoPE attend within chunks of so many tokens; 0: to all tokens before.
  std::int64_t attention_chunk = 8192;
  /// Whether layers with RoPE normalize queries and keys per head.
  bool qk_norm = true;
  /// Whether layers without RoPE scale queries by their positions (temperature_of).
  bool temperature_tuning = true;
  std::int64_t floor_scale = 8192;
  double attention_scale = 0.1;

  double norm_epsilon = 1e-5;
  RopeConfig rope = {.theta = 500'000.0, .scaling = Llama3Scaling{}};
  /// Whether the head's weight is the embedding's.
  bool tied = false;
  /// The embedding of this token gets no gradient from lookups, as Transformers pads batches.
  std::optional<std::int64_t> padding_id = std::nullopt;
  /// Biases of q, k, v and o.
  bool attention_bias = false;
  /// These models have none; a member of every family. Must be 0.
  double dropout = 0.0;

  bool has_experts(std::int64_t layer) const;
  bool has_rope(std::int64_t layer) const;
};

/// 1 + attention_scale ln(1 + floor((position + 1) / floor_scale)).
double temperature_of(const Llama4Config& config, std::int64_t position);

/// "llama4-scout" (109B, 17B of them active) and "llama4-maverick" (400B, 17B active) as published,
/// without their vision models, and "llama4-mini" (laptop size: 4 layers, context 256, tied).
const Presets<Llama4Config>& llama4_presets();

/// From a Hugging Face config.json: of the text model (model_type llama4_text), or of the whole
/// model (llama4), as its `text_config`. Raises Error if an entry is missing or not supported.
Llama4Config llama4_config_from(const nlohmann::json& config);
/// The text model's config.json, in the dialect of Transformers 4.x, which 5.x reads too.
nlohmann::json to_json(const Llama4Config& config);

/// Raises Error if a size is out of bounds, or sizes do not suit each other.
void check_config(const Llama4Config& config);

/// The configuration must have passed check_config.
TransformerShape shape_of(const Llama4Config& config);

}  // namespace tessera
