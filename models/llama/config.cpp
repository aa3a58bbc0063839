#include "models/llama/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "models/config_reader.h"
#include "models/decoder_config.h"
#include "runtime/check.h"

namespace tessera {
namespace {

/// Refuses entries that would load and silently compute something else.
void check_supported(const ConfigReader& reader, const nlohmann::json& config, LlamaKind kind) {
  check_supported_decoder(reader);
  if (kind == LlamaKind::llama) check_full_attention(config);
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

std::string_view layer_type(const LlamaConfig& config, std::int64_t layer) {
  return config.has_window(layer) ? "sliding_attention" : "full_attention";
}

/// Mistral's layers all have windows. Qwen's have them if use_sliding_window is true, in the layers
/// that layer_types names or else from max_window_layers on.
void read_windows(LlamaConfig& result, const ConfigReader& reader, const nlohmann::json& config) {
  constexpr const char* kWindow = "sliding_window";
  if (result.kind == LlamaKind::llama) return;
  const bool mistral = result.kind == LlamaKind::mistral;
  const bool null = config.contains(kWindow) && !reader.has(kWindow);
  if (!null && (mistral || reader.flag("use_sliding_window", false))) {
    result.window = reader.whole(kWindow, 4096);
    check(result.window >= 1, "config.json: {} is {}; expected at least 1, or null for no window",
          kWindow, result.window);
  }
  const auto types = config.find("layer_types");
  const bool listed = types != config.end() && !types->is_null();
  check(!listed || (types->is_array() && std::ssize(*types) == result.layers),
        "config.json: layer_types is {}; expected a list of {} layers",
        excerpt(listed ? types->dump() : ""), result.layers);
  if (!mistral) {
    const std::int64_t first = reader.whole("max_window_layers", 28);
    result.window_layers.emplace();
    for (std::int64_t i = 0; i < result.layers; ++i) {
      const bool sliding =
          listed ? (*types)[static_cast<std::size_t>(i)] == "sliding_attention" : i >= first;
      if (sliding) result.window_layers->push_back(i);
    }
  }
  for (std::int64_t i = 0; listed && i < result.layers; ++i) {
    const nlohmann::json& type = (*types)[static_cast<std::size_t>(i)];
    check(type == layer_type(result, i),
          "config.json: layer_types has {} for layer {}; expected {}, by the other keys of windows",
          excerpt(type.is_string() ? type.get<std::string>() : type.dump()), i,
          layer_type(result, i));
  }
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
  const std::int64_t context = reader.whole("max_position_embeddings");
  const std::int64_t heads = reader.whole("num_attention_heads");
  LlamaConfig result{
      .kind = kind,
      .vocab_size = reader.whole("vocab_size"),
      .context = context,
      .layers = reader.whole("num_hidden_layers"),
      .heads = heads,
      .kv_heads = reader.whole("num_key_value_heads", usual_kv_heads(kind, heads)),
      .head_size = reader.whole("head_dim", usual_head_size(kind)),
      .width = reader.whole("hidden_size"),
      .mlp_width = reader.whole("intermediate_size"),
      .norm_epsilon = reader.number("rms_norm_eps", 1e-6),
      .rope = read_rope(reader, context),
      .tied = reader.flag("tie_word_embeddings", false),
      .padding_id = read_padding_id(reader, reader.whole("vocab_size")),
      .attention_bias = kind != LlamaKind::qwen2 && reader.flag("attention_bias", false),
      .mlp_bias = reader.flag("mlp_bias", false),
  };
  result.context = stretched_context(result.rope, context);
  check_size("layers", result.layers, LargestSizes::layers);
  read_windows(result, reader, config);
  check_config(result);
  result.head_size = head_size_of(result);
  return result;
}

nlohmann::json to_json(const LlamaConfig& config) {
  nlohmann::json result = {
      {"model_type", enum_name(config.kind)},
      {"architectures", {architecture(config.kind)}},
      {"vocab_size", config.vocab_size},
      {"max_position_embeddings", config.context},
      {"hidden_size", config.width},
      {"intermediate_size", config.mlp_width},
      {"num_hidden_layers", config.layers},
      {"num_attention_heads", config.heads},
      {"num_key_value_heads", config.kv_heads},
      {"head_dim", head_size_of(config)},
      {"hidden_act", "silu"},
      {"rms_norm_eps", config.norm_epsilon},
      {"initializer_range", 0.02},
      {"tie_word_embeddings", config.tied},
      // Transformers' defaults are tokens that a small vocabulary does not have.
      {"bos_token_id", nullptr},
      {"eos_token_id", nullptr},
  };
  write_padding_id(result, config.padding_id);
  if (config.kind == LlamaKind::llama || config.kind == LlamaKind::qwen3) {
    result["attention_bias"] = config.attention_bias;
  }
  if (config.kind == LlamaKind::llama) result["mlp_bias"] = config.mlp_bias;
  write_windows(result, config);
  write_rope(result, config.rope);
  return result;
}

void check_config(const LlamaConfig& config) {
  check_rms_decoder(config);
  // Transformers refuses such a Llama even if it names a head size.
  check(config.kind != LlamaKind::llama || config.width % config.heads == 0,
        "width is {}; expected a multiple of the {} heads", config.width, config.heads);
  check(
      !config.attention_bias || config.kind == LlamaKind::llama || config.kind == LlamaKind::qwen3,
      "attention_bias is true; expected false: {} has its own biases, or none",
      enum_name(config.kind));
  check(!config.mlp_bias || config.kind == LlamaKind::llama,
        "mlp_bias is true; expected false for {}", enum_name(config.kind));
  check(0 <= config.window && config.window <= LargestSizes::context &&
            (config.window == 0 || config.kind != LlamaKind::llama),
        "window is {}; expected 0 to {}, and 0 for llama", config.window, LargestSizes::context);
}

TransformerShape shape_of(const LlamaConfig& config) {
  std::int64_t with_windows = 0;
  for (std::int64_t i = 0; i < config.layers; ++i) with_windows += config.has_window(i);
  return {.vocab_size = config.vocab_size,
          .context = config.context,
          .layers = config.layers,
          .width = config.width,
          .heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_size = head_size_of(config),
          .mlp_width = config.mlp_width,
          .gated_mlp = true,
          .windows = {.layers = with_windows, .tokens = config.window},
          .qk_norm = config.kind == LlamaKind::qwen3};
}

}  // namespace tessera
