// GPT-2's hyperparameters: presets, checks, and config.json.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "kernels/gelu/op.h"
#include "models/presets.h"
#include "models/transformer_shape.h"

namespace tessera {

struct Gpt2Config {
  std::int64_t vocab_size = 50257;
  std::int64_t context = 1024;
  std::int64_t layers = 12;
  std::int64_t heads = 12;
  std::int64_t width = 768;
  /// After the embedding and after each block's two branches. (Attention weights have no dropout:
  /// they never exist in memory.)
  double dropout = 0.0;
  double norm_epsilon = 1e-5;
  GeluForm gelu = GeluForm::tanh;
};

/// "gpt2" (124M), "gpt2-medium" (355M), "gpt2-large" (774M) and "gpt2-xl" (1558M) as published, and
/// "gpt2-mini" (laptop size: 4 layers, 4 heads, width 256, context 256).
const Presets<Gpt2Config>& gpt2_presets();

/// From a Hugging Face config.json. Raises Error if an entry is missing or not supported.
Gpt2Config gpt2_config_from(const nlohmann::json& config);
/// The Hugging Face config.json.
nlohmann::json to_json(const Gpt2Config& config);

/// Raises Error if a size is out of bounds, the width is not a multiple of the heads, the dropout is
/// not in [0, 1), or the epsilon is not positive.
void check_config(const Gpt2Config& config);

/// The configuration must have passed check_config.
TransformerShape shape_of(const Gpt2Config& config);

}  // namespace tessera
