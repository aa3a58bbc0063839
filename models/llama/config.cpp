#include "models/llama/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "models/config_reader.h"
#include "models/decoder_config.h"
#include "runtime/check.h"

namespace tessera {
namespace {

bool may_have_windows(LlamaKind kind) {
  return kind != LlamaKind::llama && kind != LlamaKind::olmo2;
}

/// Whether attention_bias decides about biases.
bool has_attention_bias(LlamaKind kind) {
  return kind != LlamaKind::mistral && kind != LlamaKind::qwen2;
}

/// Refuses entries that would load and silently compute something else.
void check_supported(const ConfigReader& reader, const nlohmann::json& config, LlamaKind kind) {
  check_supported_decoder(reader);
  if (!may_have_windows(kind)) check_full_attention(config);
  if (kind != LlamaKind::llama) reader.require("mlp_bias", false);
  if (kind == LlamaKind::mistral) reader.require("attention_bias", false);
  if (kind == LlamaKind::qwen2) reader.require("attention_bias", true);
}

/// Transformers' default for a file without head_dim: 0 is width / heads.
std::int64_t usual_head_size(LlamaKind kind) {
  return kind == LlamaKind::qwen3 ? 128 : 0;
}

/// Transformers' default for a file without num_key_value_heads.
std::int64_t usual_kv_heads(LlamaKind kind, std::int64_t heads) {
  return kind == LlamaKind::mistral ? 8 : heads;
}

/// Transformers' default for a file without rms_norm_eps.
double usual_epsilon(LlamaKind kind) {
  return kind == LlamaKind::olmo2 ? 1e-5 : 1e-6;
}

std::string_view layer_type(const LlamaConfig& config, std::int64_t layer) {
  return config.has_window(layer) ? "sliding_attention" : "full_attention";
}

/// Mistral's layers all have windows. Qwen's have them if use_sliding_window is true, in the layers
/// that layer_types names or else from max_window_layers on.
void read_windows(LlamaConfig& result, const ConfigReader& reader, const nlohmann::json& config) {
  constexpr const char* kWindow = "sliding_window";
  if (!may_have_windows(result.kind)) return;
  const bool mistral = result.kind == LlamaKind::mistral;
  const bool null = config.contains(kWindow) && !reader.has(kWindow);
  if (!null && (mistral || reader.flag("use_sliding_window", false))) {
    result.window = reader.whole(kWindow, 4096);
    check(result.window >= 1, "config.json: {} is {}; expected at least 1, or null for no window",
          kWindow, result.window);
  }
  if (!mistral) {
    const std::int64_t first = reader.whole("max_window_layers", 28);
    const auto types = config.find("layer_types");
    const bool listed = types != config.end() && types->is_array();
    result.window_layers.emplace();
    for (std::int64_t i = 0; i < result.layers; ++i) {
      const auto place = static_cast<std::size_t>(i);
      const bool sliding =
          listed ? place < types->size() && (*types)[place] == "sliding_attention" : i >= first;
      if (sliding) result.window_layers->push_back(i);
    }
  }
  check_layer_types(config, result.layers, "the other keys of windows",
                    [&](std::int64_t layer) { return layer_type(result, layer); });
}

void write_windows(nlohmann::json& result, const LlamaConfig& config) {
  if (config.kind == LlamaKind::mistral) result["sliding_window"] = nullptr;
  if (config.window == 0) return;
  result["sliding_window"] = config.window;
  if (config.kind == LlamaKind::mistral) return;
  result["use_sliding_window"] = true;
  for (std::int64_t i = 0; i < config.layers; ++i) {
    result["layer_types"].push_back(layer_type(config, i));
  }
}

std::string_view architecture(LlamaKind kind) {
  switch (kind) {
    case LlamaKind::llama:
      return "LlamaForCausalLM";
    case LlamaKind::qwen2:
      return "Qwen2ForCausalLM";
    case LlamaKind::qwen3:
      return "Qwen3ForCausalLM";
    case LlamaKind::mistral:
      return "MistralForCausalLM";
    case LlamaKind::olmo2:
      return "Olmo2ForCausalLM";
  }
  fail("the model's kind is {}; expected one of {}", static_cast<int>(kind),
       listed(enum_names<LlamaKind>()));
}

}  // namespace

bool LlamaConfig::has_window(std::int64_t layer) const {
  return window > 0 &&
         (!window_layers || std::count(window_layers->begin(), window_layers->end(), layer) > 0);
}

LlamaConfig llama_config_from(const nlohmann::json& config) {
  const ConfigReader reader(config);
  const LlamaKind kind = enum_from_name<LlamaKind>(reader.text("model_type", ""));
  check_supported(reader, config, kind);
  const std::int64_t heads = reader.whole("num_attention_heads");
  LlamaConfig result = read_rms_decoder(reader, LlamaConfig{.kind = kind,
                                                            .kv_heads = usual_kv_heads(kind, heads),
                                                            .head_size = usual_head_size(kind),
                                                            .norm_epsilon = usual_epsilon(kind)});
  result.mlp_width = reader.whole("intermediate_size");
  if (kind == LlamaKind::qwen2) result.attention_bias = false;
  result.mlp_bias = reader.flag("mlp_bias", false);
  check_size("layers", result.layers, LargestSizes::layers);
  read_windows(result, reader, config);
  check_config(result);
  result.head_size = head_size_of(result);
  return result;
}

nlohmann::json to_json(const LlamaConfig& config) {
  nlohmann::json result = write_rms_decoder(config);
  result.update({
      {"model_type", enum_name(config.kind)},
      {"architectures", {architecture(config.kind)}},
      {"intermediate_size", config.mlp_width},
  });
  if (!has_attention_bias(config.kind)) result.erase("attention_bias");
  if (config.kind == LlamaKind::llama) result["mlp_bias"] = config.mlp_bias;
  write_windows(result, config);
  return result;
}

void check_config(const LlamaConfig& config) {
  check_rms_decoder(config);
  // Transformers refuses such a Llama even if it names a head size.
  check(config.kind != LlamaKind::llama || config.width % config.heads == 0,
        "width is {}; expected a multiple of the {} heads", config.width, config.heads);
  check(!config.attention_bias || has_attention_bias(config.kind),
        "attention_bias is true; expected false: {} has its own biases, or none",
        enum_name(config.kind));
  check(!config.mlp_bias || config.kind == LlamaKind::llama,
        "mlp_bias is true; expected false for {}", enum_name(config.kind));
  check(0 <= config.window && config.window <= LargestSizes::context &&
            (config.window == 0 || may_have_windows(config.kind)),
        "window is {}; expected 0 to {}, and 0 for llama and olmo2", config.window,
        LargestSizes::context);
}

TransformerShape shape_of(const LlamaConfig& config) {
  std::int64_t with_windows = 0;
  for (std::int64_t i = 0; i < config.layers; ++i) with_windows += config.has_window(i);
  TransformerShape shape = rms_decoder_shape(config);
  shape.windows = {.layers = with_windows, .tokens = config.window};
  shape.qk_norm = config.kind == LlamaKind::qwen3 || config.kind == LlamaKind::olmo2;
  return shape;
}

}  // namespace tessera
