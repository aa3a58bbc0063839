// The parts of a config.json, and the checks of sizes, that decoders with RoPE share.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "models/config_reader.h"
#include "models/rope_config.h"
#include "models/transformer_shape.h"
#include "runtime/check.h"

namespace tessera {

/// Raises Error for entries that would load and silently compute something else: another activation
/// than the one expected under this key, quantized weights.
void check_supported_decoder(const ConfigReader& reader, const char* key = "hidden_act",
                             const std::string& expected = "silu");

/// Raises Error if use_sliding_window is true, or layer_types names a layer that does not attend to all
/// tokens before.
void check_full_attention(const nlohmann::json& config);

/// Raises Error unless the heads of keys and values divide the heads, and a head's channels come in
/// pairs.
void check_heads(std::int64_t heads, std::int64_t kv_heads, std::int64_t head_size);

/// Raises Error unless layer_types, if it is given, lists type_of(layer) for every layer: the kinds of
/// attention follow from `other_keys`, and a file may repeat them.
void check_layer_types(const nlohmann::json& config, std::int64_t layers,
                       std::string_view other_keys,
                       const std::function<std::string_view(std::int64_t layer)>& type_of);

/// pad_token_id, the row of the embedding that gets no gradient from lookups: torch.nn.Embedding's
/// padding_idx, which counts from the end if it is negative. Raises Error if there is no such row.
std::optional<std::int64_t> read_padding_id(const ConfigReader& reader, std::int64_t vocab_size);

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
  check(std::isfinite(config.norm_epsilon) && config.norm_epsilon > 0.0,
        "rms_norm_eps is {}; expected a positive number", config.norm_epsilon);
  check(!config.padding_id || (0 <= *config.padding_id && *config.padding_id < config.vocab_size),
        "padding_id is {}; expected a token below vocab_size, {}", config.padding_id.value_or(0),
        config.vocab_size);
  check_rope(config.rope, head_size_of(config));
}

/// The entries that Llama's family and its followers share, over `usual`: the family's defaults for a
/// file without them.
template <typename Config>
Config read_rms_decoder(const ConfigReader& reader, Config usual) {
  Config config = std::move(usual);
  config.vocab_size = reader.whole("vocab_size");
  config.context = reader.whole("max_position_embeddings");
  config.layers = reader.whole("num_hidden_layers");
  config.heads = reader.whole("num_attention_heads");
  config.kv_heads = reader.whole("num_key_value_heads", config.kv_heads);
  config.head_size = reader.whole("head_dim", config.head_size);
  config.width = reader.whole("hidden_size");
  config.norm_epsilon = reader.number("rms_norm_eps", config.norm_epsilon);
  config.rope = read_rope(reader, config.context, config.rope.theta);
  config.context = stretched_context(config.rope, config.context);
  config.tied = reader.flag("tie_word_embeddings", false);
  config.padding_id = read_padding_id(reader, config.vocab_size);
  config.attention_bias = reader.flag("attention_bias", false);
  return config;
}

/// The same entries of a config.json.
template <typename Config>
nlohmann::json write_rms_decoder(const Config& config) {
  nlohmann::json result = {
      {"vocab_size", config.vocab_size},
      {"max_position_embeddings", config.context},
      {"hidden_size", config.width},
      {"num_hidden_layers", config.layers},
      {"num_attention_heads", config.heads},
      {"num_key_value_heads", config.kv_heads},
      {"head_dim", head_size_of(config)},
      {"attention_bias", config.attention_bias},
      {"hidden_act", "silu"},
      {"rms_norm_eps", config.norm_epsilon},
      {"initializer_range", 0.02},
      {"tie_word_embeddings", config.tied},
      // Transformers' defaults are tokens that a small vocabulary does not have.
      {"bos_token_id", nullptr},
      {"eos_token_id", nullptr},
  };
  if (config.padding_id) result["pad_token_id"] = *config.padding_id;
  write_rope(result, config.rope);
  return result;
}

/// The sizes that these families share.
template <typename Config>
TransformerShape rms_decoder_shape(const Config& config) {
  return {.vocab_size = config.vocab_size,
          .context = config.context,
          .layers = config.layers,
          .width = config.width,
          .heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_size = head_size_of(config),
          .mlp_width = config.mlp_width,
          .gated_mlp = true};
}

/// Raises Error if there are too many experts, a token takes more than there are, or an expert's
/// channels are out of bounds.
void check_experts(std::int64_t experts, std::int64_t experts_per_token, std::int64_t expert_width);

}  // namespace tessera
