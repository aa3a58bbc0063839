// Hyperparameters of Gemma 3's text models: presets, checks, and config.json.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "models/presets.h"
#include "models/rope_config.h"
#include "models/transformer_shape.h"

namespace tessera {

/// The defaults are Gemma 3 1B's.
struct Gemma3Config {
  std::int64_t vocab_size = 262144;
  std::int64_t context = 32768;
  std::int64_t layers = 26;
  std::int64_t heads = 4;
  /// Heads of keys and values, a divisor of `heads`.
  std::int64_t kv_heads = 1;
  /// 0: width / heads.
  std::int64_t head_size = 256;
  std::int64_t width = 1152;
  std::int64_t mlp_width = 6912;
  /// Scores of attention are divided by its root.
  std::int64_t query_scalar = 256;
  /// A query of a local layer sees the last `window` tokens, itself among them.
  std::int64_t window = 512;
  /// Layer i is global if (i + 1) is a multiple of this number. The others are local.
  std::int64_t global_every = 6;
  double norm_epsilon = 1e-6;
  RopeConfig rope = {.theta = 1e6};
  /// The theta of local layers, which have no scaling.
  double local_theta = 1e4;
  /// Whether the head's weight is the embedding's.
  bool tied = true;
  /// The embedding of this token gets no gradient from lookups, as Transformers pads batches.
  std::optional<std::int64_t> padding_id = std::nullopt;
  bool attention_bias = false;
  /// These models have none; a member of every family. Must be 0.
  double dropout = 0.0;

  RopeConfig local_rope() const { return {.theta = local_theta, .angles = rope.angles}; }
  bool is_local(std::int64_t layer) const { return (layer + 1) % global_every != 0; }
};

/// "gemma3-270m" to "gemma3-27b", and "gemma3-mini" (laptop size: 4 layers, every second one global,
/// context 256).
const Presets<Gemma3Config>& gemma3_presets();

/// From a Hugging Face config.json of a text model (gemma3_text), or of a model that also sees images
/// (gemma3), whose text model it takes. Raises Error if an entry is missing or not supported.
Gemma3Config gemma3_config_from(const nlohmann::json& config);
/// The Hugging Face config.json, in the dialect of Transformers 4.x, which 5.x reads too.
nlohmann::json to_json(const Gemma3Config& config);

/// Raises Error if a size is out of bounds, or sizes do not suit each other.
void check_config(const Gemma3Config& config);

/// The configuration must have passed check_config.
TransformerShape shape_of(const Gemma3Config& config);

}  // namespace tessera
