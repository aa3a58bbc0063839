#include "models/qwen3_moe/config.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "models/config_reader.h"
#include "models/decoder_config.h"
#include "runtime/check.h"

namespace tessera {
namespace {

/// Transformers 4.x writes num_experts, 5.x num_local_experts.
std::int64_t read_experts(const ConfigReader& reader) {
  constexpr const char *kOld = "num_experts", *kNew = "num_local_experts";
  check(!reader.has(kOld) || !reader.has(kNew) || reader.whole(kOld) == reader.whole(kNew),
        "config.json: {} and {} are both given, and differ; expected one of them", kOld, kNew);
  return reader.whole(reader.has(kNew) ? kNew : kOld);
}

void check_layers(const Qwen3MoeConfig& config) {
  check_size("decoder_sparse_step", config.experts_every, LargestSizes::layers);
  for (const std::int64_t layer : config.dense_layers) {
    check(0 <= layer && layer < LargestSizes::layers,
          "mlp_only_layers names layer {}; expected 0 to {}", layer, LargestSizes::layers - 1);
  }
}

struct Preset {
  std::string_view name;
  Qwen3MoeConfig config;
};

/// A model for a laptop. A token's two experts have as many channels as qwen3-mini's layer.
Qwen3MoeConfig mini() {
  return {.vocab_size = 32000,
          .context = 256,
          .layers = 4,
          .heads = 2,
          .kv_heads = 2,
          .head_size = 128,
          .width = 256,
          .mlp_width = 688,
          .experts = 8,
          .experts_per_token = 2,
          .expert_width = 344,
          .tied = true};
}

const std::array<Preset, 2>& presets() {
  // Qwen Team 2025, "Qwen3 Technical Report", table 2, and its config.json.
  static const std::array<Preset, 2> all = {{{"qwen3-30b-a3b", {}}, {"qwen3-moe-mini", mini()}}};
  return all;
}

}  // namespace

bool Qwen3MoeConfig::has_experts(std::int64_t layer) const {
  return (layer + 1) % experts_every == 0 &&
         std::count(dense_layers.begin(), dense_layers.end(), layer) == 0;
}

const std::vector<std::string_view>& qwen3_moe_presets() {
  static const std::vector<std::string_view> names = {presets()[0].name, presets()[1].name};
  return names;
}

Qwen3MoeConfig qwen3_moe_preset(std::string_view name) {
  for (const Preset& preset : presets()) {
    if (preset.name == name) return preset.config;
  }
  fail("unknown preset '{}': choose one of {}", name, fmt::join(qwen3_moe_presets(), ", "));
}

Qwen3MoeConfig qwen3_moe_config_from(const nlohmann::json& config) {
  const ConfigReader reader(config);
  check_supported_decoder(reader);
  check_full_attention(config);
  const std::int64_t context = reader.whole("max_position_embeddings");
  // Defaults are those of Transformers' Qwen3MoeConfig.
  Qwen3MoeConfig result{
      .vocab_size = reader.whole("vocab_size"),
      .context = context,
      .layers = reader.whole("num_hidden_layers"),
      .heads = reader.whole("num_attention_heads"),
      .kv_heads = reader.whole("num_key_value_heads", 4),
      .head_size = reader.whole("head_dim", 0),
      .width = reader.whole("hidden_size"),
      .mlp_width = reader.whole("intermediate_size", 6144),
      .experts = read_experts(reader),
      .experts_per_token = reader.whole("num_experts_per_tok", 8),
      .expert_width = reader.whole("moe_intermediate_size", 768),
      .normalized_weights = reader.flag("norm_topk_prob", false),
      .experts_every = reader.whole("decoder_sparse_step", 1),
      .dense_layers = reader.wholes("mlp_only_layers"),
      .norm_epsilon = reader.number("rms_norm_eps", 1e-6),
      .rope = read_rope(reader, context),
      .tied = reader.flag("tie_word_embeddings", false),
      .padding_id = read_padding_id(reader, reader.whole("vocab_size")),
      .attention_bias = reader.flag("attention_bias", false),
  };
  result.context = stretched_context(result.rope, context);
  check_config(result);
  result.head_size = head_size_of(result);
  return result;
}

nlohmann::json to_json(const Qwen3MoeConfig& config) {
  nlohmann::json result = {
      {"model_type", "qwen3_moe"},
      {"architectures", {"Qwen3MoeForCausalLM"}},
      {"vocab_size", config.vocab_size},
      {"max_position_embeddings", config.context},
      {"hidden_size", config.width},
      {"intermediate_size", config.mlp_width},
      {"moe_intermediate_size", config.expert_width},
      {"num_experts", config.experts},
      {"num_experts_per_tok", config.experts_per_token},
      {"norm_topk_prob", config.normalized_weights},
      {"decoder_sparse_step", config.experts_every},
      {"mlp_only_layers", config.dense_layers},
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
  write_padding_id(result, config.padding_id);
  write_rope(result, config.rope);
  return result;
}

void check_config(const Qwen3MoeConfig& config) {
  check_rms_decoder(config);
  check_experts(config.experts, config.experts_per_token, config.expert_width);
  check_layers(config);
}

TransformerShape shape_of(const Qwen3MoeConfig& config) {
  std::int64_t with_experts = 0;
  for (std::int64_t i = 0; i < config.layers; ++i) with_experts += config.has_experts(i);
  return {.vocab_size = config.vocab_size,
          .context = config.context,
          .layers = config.layers,
          .width = config.width,
          .heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_size = head_size_of(config),
          .mlp_width = config.mlp_width,
          .gated_mlp = true,
          .experts = {.layers = with_experts,
                      .count = config.experts,
                      .per_token = config.experts_per_token,
                      .width = config.expert_width},
          .qk_norm = true};
}

}  // namespace tessera
