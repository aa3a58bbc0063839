#include "models/llama4/config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "models/config_reader.h"
#include "models/decoder_config.h"
#include "runtime/check.h"
#include "runtime/elementary.h"
#include "runtime/json.h"

namespace tessera {
namespace {

/// Published files have the number 4 where Transformers 5 expects true.
bool read_tuning(const ConfigReader& reader, const nlohmann::json& config) {
  constexpr const char* kKey = "attn_temperature_tuning";
  const auto found = config.find(kKey);
  const bool is_number = found != config.end() && found->is_number_integer();
  return is_number ? reader.whole(kKey) != 0 : reader.flag(kKey, true);
}

/// 0 without chunks.
std::int64_t read_chunk(const ConfigReader& reader, const nlohmann::json& config) {
  constexpr const char* kKey = "attention_chunk_size";
  if (config.contains(kKey) && !reader.has(kKey)) return 0;
  const std::int64_t chunk = reader.whole(kKey, 8192);
  check(chunk >= 1, "config.json: {} is {}; expected at least 1, or null for no chunks", kKey,
        chunk);
  return chunk;
}

bool attends_in_chunks(const Llama4Config& config, std::int64_t layer) {
  return config.attention_chunk > 0 && config.has_rope(layer);
}

std::string_view layer_type(const Llama4Config& config, std::int64_t layer) {
  return attends_in_chunks(config, layer) ? "chunked_attention" : "full_attention";
}

Llama4Config read(const ConfigReader& reader, const nlohmann::json& config) {
  check_supported_decoder(reader);
  reader.require("use_sliding_window", false);
  // Defaults are those of Transformers' Llama4TextConfig.
  Llama4Config usual{
      .kv_heads = 8,
      .head_size = config.contains("head_dim") ? 0 : 128,
      .mlp_width = reader.whole("intermediate_size_mlp", 16384),
      .experts = reader.whole("num_local_experts", 16),
      .experts_per_token = reader.whole("num_experts_per_tok", 1),
      .expert_width = reader.whole("intermediate_size", 8192),
      .experts_every = reader.whole("interleave_moe_layer_step", 1),
      .nope_every = reader.whole("no_rope_layer_interval", 4),
      .rope_layers = reader.wholes("no_rope_layers"),
      .attention_chunk = read_chunk(reader, config),
      .qk_norm = reader.flag("use_qk_norm", true),
      .temperature_tuning = read_tuning(reader, config),
      .floor_scale = reader.whole("floor_scale", 8192),
      .attention_scale = reader.number("attn_scale", 0.1),
      .norm_epsilon = 1e-5,
      .rope = {.theta = 500'000.0},
  };
  if (reader.has("moe_layers")) usual.expert_layers = reader.wholes("moe_layers");
  Llama4Config result = read_rms_decoder(reader, std::move(usual));
  check_config(result);
  check_layer_types(config, result.layers, "no_rope_layers",
                    [&](std::int64_t layer) { return layer_type(result, layer); });
  result.head_size = head_size_of(result);
  return result;
}

void check_layers(const Llama4Config& config) {
  check_size("interleave_moe_layer_step", config.experts_every, LargestSizes::layers);
  check_size("no_rope_layer_interval", config.nope_every, LargestSizes::layers);
  const auto rope_layers = static_cast<std::int64_t>(config.rope_layers.size());
  check(rope_layers == 0 || rope_layers >= config.layers,
        "no_rope_layers has {} layers; expected {}, all of the model", rope_layers, config.layers);
  for (const std::int64_t layer : config.expert_layers.value_or(std::vector<std::int64_t>())) {
    check(0 <= layer && layer < LargestSizes::layers, "moe_layers names layer {}; expected 0 to {}",
          layer, LargestSizes::layers - 1);
  }
}

void check_attention(const Llama4Config& config) {
  check(0 <= config.attention_chunk && config.attention_chunk <= LargestSizes::context,
        "attention_chunk_size is {}; expected 0 to {}", config.attention_chunk,
        LargestSizes::context);
  check_size("floor_scale", config.floor_scale, std::int64_t{1} << 40);
  check(std::isfinite(config.attention_scale), "attn_scale is {}; expected a finite number",
        config.attention_scale);
}

}  // namespace

bool Llama4Config::has_experts(std::int64_t layer) const {
  if (!expert_layers) return (layer + 1) % experts_every == 0;
  return std::count(expert_layers->begin(), expert_layers->end(), layer) > 0;
}

bool Llama4Config::has_rope(std::int64_t layer) const {
  if (rope_layers.empty()) return (layer + 1) % nope_every != 0;
  return rope_layers[static_cast<std::size_t>(layer)] != 0;
}

double temperature_of(const Llama4Config& config, std::int64_t position) {
  const std::int64_t steps = (position + 1) / config.floor_scale;
  return 1.0 + config.attention_scale * logarithm(1.0 + static_cast<double>(steps));
}

Llama4Config llama4_config_from(const nlohmann::json& config) {
  const ConfigReader reader(config);
  if (reader.text("model_type", "") != "llama4") return read(reader, config);
  const auto text = reader.object("text_config");
  check(text.has_value(),
        "config.json: text_config is missing; expected the text model's configuration");
  reader.require("tie_word_embeddings", false);
  return read(*text, config.at("text_config"));
}

nlohmann::json to_json(const Llama4Config& config) {
  nlohmann::json result = write_rms_decoder(config);
  result.update({
      {"model_type", "llama4_text"},
      {"architectures", {"Llama4ForCausalLM"}},
      {"intermediate_size", config.expert_width},
      {"intermediate_size_mlp", config.mlp_width},
      {"num_local_experts", config.experts},
      {"num_experts_per_tok", config.experts_per_token},
      {"interleave_moe_layer_step", config.experts_every},
      {"no_rope_layer_interval", config.nope_every},
      {"use_qk_norm", config.qk_norm},
      {"attn_temperature_tuning", config.temperature_tuning},
      {"floor_scale", config.floor_scale},
      {"attn_scale", config.attention_scale},
      {"attention_chunk_size", nullptr},
  });
  if (config.attention_chunk > 0) result["attention_chunk_size"] = config.attention_chunk;
  for (std::int64_t i = 0; i < config.layers; ++i) {
    result["no_rope_layers"].push_back(config.has_rope(i) ? 1 : 0);
    result["layer_types"].push_back(layer_type(config, i));
  }
  result["moe_layers"] = nlohmann::json::array();
  for (std::int64_t i = 0; i < config.layers; ++i) {
    if (config.has_experts(i)) result["moe_layers"].push_back(i);
  }
  return result;
}

void check_config(const Llama4Config& config) {
  check_rms_decoder(config);
  check(deciding_length(config.rope.scaling, 1) == 0,
        "rope_type is dynamic or longrope; expected default, linear, llama3 or yarn for llama4");
  check_attention(config);
  check_experts(config.experts, config.experts_per_token, config.expert_width);
  check_layers(config);
}

TransformerShape shape_of(const Llama4Config& config) {
  TransformerShape shape = rms_decoder_shape(config);
  shape.experts = {.count = config.experts,
                   .per_token = config.experts_per_token,
                   .width = config.expert_width,
                   .shared_width = config.expert_width,
                   .weighed = WeighedInput::gate_up};
  shape.plain_qk_norm = config.qk_norm;
  shape.chunks.tokens = config.attention_chunk;
  for (std::int64_t i = 0; i < config.layers; ++i) {
    shape.experts.layers += config.has_experts(i);
    shape.chunks.layers += attends_in_chunks(config, i);
  }
  return shape;
}

}  // namespace tessera
