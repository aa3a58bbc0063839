// The parts of a config.json, and the checks of sizes, that decoders with RoPE share.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "models/config_reader.h"
#include "models/rope_config.h"
#include "models/transformer_shape.h"
#include "runtime/check.h"

namespace tessera {

/// Raises Error for entries that would load and silently compute something else: another activation
/// than SiLU, quantized weights.
void check_supported_decoder(const ConfigReader& reader);

/// Raises Error if use_sliding_window is true, or layer_types names a layer that does not attend to all
/// tokens before.
void check_full_attention(const nlohmann::json& config);

/// Raises Error unless the heads of keys and values divide the heads, and a head's channels come in
/// pairs.
void check_heads(std::int64_t heads, std::int64_t kv_heads, std::int64_t head_size);

/// Raises Error unless rms_norm_eps is a positive number.
void check_norm_epsilon(double epsilon);

/// pad_token_id, the row of the embedding that gets no gradient from lookups: torch.nn.Embedding's
/// padding_idx, which counts from the end if it is negative. Raises Error if there is no such row.
std::optional<std::int64_t> read_padding_id(const ConfigReader& reader, std::int64_t vocab_size);
/// Writes pad_token_id if there is one.
void write_padding_id(nlohmann::json& config, std::optional<std::int64_t> id);

/// The channels of a head, for a configuration that may have 0 for width / heads.
template <typename Config>
std::int64_t head_size_of(const Config& config) {
  return config.head_size != 0 ? config.head_size : config.width / config.heads;
}

/// Raises Error unless every size and option that Llama's family and its followers share is valid: the
/// sizes of all families, heads, mlp_width, dropout (which must be 0), rms_norm_eps and RoPE.
template <typename Config>
void check_rms_decoder(const Config& config) {
  check_sizes(config);
  check(config.head_size != 0 || config.width % config.heads == 0,
        "width is {}; expected a multiple of the {} heads", config.width, config.heads);
  check_heads(config.heads, config.kv_heads, head_size_of(config));
  check_size("mlp_width", config.mlp_width, LargestSizes::width);
  check(config.dropout == 0.0, "dropout is {}; expected 0: models of this family have none",
        config.dropout);
  check_norm_epsilon(config.norm_epsilon);
  check(!config.padding_id || (0 <= *config.padding_id && *config.padding_id < config.vocab_size),
        "padding_id is {}; expected a token below vocab_size, {}", config.padding_id.value_or(0),
        config.vocab_size);
  check_rope(config.rope, head_size_of(config));
}

/// Raises Error if there are too many experts, a token takes more than there are, or an expert's
/// channels are out of bounds.
void check_experts(std::int64_t experts, std::int64_t experts_per_token, std::int64_t expert_width);

}  // namespace tessera
