#include "models/qwen3_moe/config.h"

#include <algorithm>
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

}  // namespace

bool Qwen3MoeConfig::has_experts(std::int64_t layer) const {
  return (layer + 1) % experts_every == 0 &&
         std::count(dense_layers.begin(), dense_layers.end(), layer) == 0;
}

const Presets<Qwen3MoeConfig>& qwen3_moe_presets() {
  static const Presets<Qwen3MoeConfig> presets = {
      // Qwen Team 2025, "Qwen3 Technical Report", table 2, and its config.json.
      {"qwen3-30b-a3b", {}},
      {"qwen3-moe-mini", mini()},
  };
  return presets;
}

Qwen3MoeConfig qwen3_moe_config_from(const nlohmann::json& config) {
  const ConfigReader reader(config);
  check_supported_decoder(reader);
  check_full_attention(config);
  // Defaults are those of Transformers' Qwen3MoeConfig.
  Qwen3MoeConfig result = read_rms_decoder(
      reader, Qwen3MoeConfig{.kv_heads = 4,
                             .head_size = 0,
                             .mlp_width = reader.whole("intermediate_size", 6144),
                             .experts = read_experts(reader),
                             .experts_per_token = reader.whole("num_experts_per_tok", 8),
                             .expert_width = reader.whole("moe_intermediate_size", 768),
                             .normalized_weights = reader.flag("norm_topk_prob", false),
                             .experts_every = reader.whole("decoder_sparse_step", 1),
                             .dense_layers = reader.wholes("mlp_only_layers"),
                             .rope = {}});
  check_config(result);
  result.head_size = head_size_of(result);
  return result;
}

nlohmann::json to_json(const Qwen3MoeConfig& config) {
  nlohmann::json result = write_rms_decoder(config);
  result.update({
      {"model_type", "qwen3_moe"},
      {"architectures", {"Qwen3MoeForCausalLM"}},
      {"intermediate_size", config.mlp_width},
      {"moe_intermediate_size", config.expert_width},
      {"num_experts", config.experts},
      {"num_experts_per_tok", config.experts_per_token},
      {"norm_topk_prob", config.normalized_weights},
      {"decoder_sparse_step", config.experts_every},
      {"mlp_only_layers", config.dense_layers},
  });
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
  TransformerShape shape = rms_decoder_shape(config);
  shape.experts = {.layers = with_experts,
                   .count = config.experts,
                   .per_token = config.experts_per_token,
                   .width = config.expert_width};
  shape.qk_norm = true;
  return shape;
}

}  // namespace tessera
