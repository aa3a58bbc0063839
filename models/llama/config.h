// Hyperparameters of Llama, Mistral, Qwen2.5, dense Qwen3 and OLMo 2: presets, checks, and config.json.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "models/presets.h"
#include "models/rope_config.h"
#include "models/transformer_shape.h"
#include "runtime/enum_names.h"

namespace tessera {

/// The model_type of the config.json. It decides what the other members cannot express:
///
///   llama   attention_bias adds biases to q, k, v and o; mlp_bias to the MLP
///   qwen2   q, k and v always have biases, o never (Qwen2.5)
///   qwen3   as llama without mlp_bias; queries and keys are normalized per head
///   mistral has no biases
///   olmo2   as llama without mlp_bias; the outputs of attention and the feed-forward layer are
///           normalized, not their inputs, and all queries and all keys of a token together
enum class LlamaKind { llama, qwen2, qwen3, mistral, olmo2 };
template <>
inline constexpr EnumNames<LlamaKind> kEnumNames<LlamaKind> = {
    "model_type", {"llama", "qwen2", "qwen3", "mistral", "olmo2"}};

struct LlamaConfig {
  LlamaKind kind = LlamaKind::llama;
  std::int64_t vocab_size = 32000;
  std::int64_t context = 4096;
  std::int64_t layers = 32;
  std::int64_t heads = 32;
  /// Heads of keys and values, a divisor of `heads`.
  std::int64_t kv_heads = 32;
  /// 0: width / heads.
  std::int64_t head_size = 0;
  std::int64_t width = 4096;
  std::int64_t mlp_width = 11008;
  double norm_epsilon = 1e-5;
  RopeConfig rope;
  /// Whether the head's weight is the embedding's.
  bool tied = false;
  /// The embedding of this token gets no gradient from lookups, as Transformers pads batches.
  std::optional<std::int64_t> padding_id = std::nullopt;
  bool attention_bias = false;
  bool mlp_bias = false;
  /// A query sees the last `window` tokens, itself among them; 0: all tokens before. A llama and an olmo2
  /// have none.
  std::int64_t window = 0;
  /// The layers with windows; none given: all.
  std::optional<std::vector<std::int64_t>> window_layers = std::nullopt;
  /// These models have none; a member of every family. Must be 0.
  double dropout = 0.0;

  bool has_window(std::int64_t layer) const;
};

/// The published sizes of Llama 2, 3, 3.1 and 3.2, Mistral 7B, Qwen2.5, Qwen3 and OLMo 2, and "llama3-mini",
/// "qwen3-mini" and "olmo2-mini" (laptop size: 4 layers, context 256, tied).
const Presets<LlamaConfig>& llama_presets();

/// From a Hugging Face config.json. Raises Error if an entry is missing or not supported.
LlamaConfig llama_config_from(const nlohmann::json& config);
/// The Hugging Face config.json, in the dialect of Transformers 4.x, which 5.x reads too.
nlohmann::json to_json(const LlamaConfig& config);

/// Raises Error if a size is out of bounds, sizes do not divide each other, or an option is not one
/// of the kind.
void check_config(const LlamaConfig& config);

/// The configuration must have passed check_config.
TransformerShape shape_of(const LlamaConfig& config);

}  // namespace tessera
