// The parts of a config.json, and the checks of sizes, that decoders with RoPE share.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "models/config_reader.h"

namespace tessera {

/// Raises Error for entries that would load and silently compute something else: another activation
/// than SiLU, quantized weights, sliding windows.
void check_supported_decoder(const ConfigReader& reader);

/// Raises Error if layer_types names a layer that does not attend to all tokens before.
void check_full_attention(const nlohmann::json& config);

/// Raises Error unless the heads of keys and values divide the heads, and a head's channels come in
/// pairs.
void check_heads(std::int64_t heads, std::int64_t kv_heads, std::int64_t head_size);

/// Raises Error if there are too many experts, a token takes more than there are, or an expert's
/// channels are out of bounds.
void check_experts(std::int64_t experts, std::int64_t experts_per_token, std::int64_t expert_width);

/// Raises Error unless rms_norm_eps is a positive number.
void check_norm_epsilon(double epsilon);

}  // namespace tessera
