#include "models/llama/config.h"

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
  check_full_attention(config);
  if (kind != LlamaKind::llama) reader.require("mlp_bias", false);
  if (kind == LlamaKind::qwen2) reader.require("attention_bias", true);
}

/// Transformers' default for a file without head_dim: 0 is width / heads.
std::int64_t usual_head_size(LlamaKind kind) {
  return kind == LlamaKind::qwen3 ? 128 : 0;
}

std::string_view architecture(LlamaKind kind) {
  switch (kind) {
    case LlamaKind::llama:
      return "LlamaForCausalLM";
    case LlamaKind::qwen2:
      return "Qwen2ForCausalLM";
    case LlamaKind::qwen3:
      return "Qwen3ForCausalLM";
  }
  fail("the model's kind is {}; expected llama, qwen2 or qwen3", static_cast<int>(kind));
}

}  // namespace

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
      .kv_heads = reader.whole("num_key_value_heads", heads),
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
  if (config.kind != LlamaKind::qwen2) result["attention_bias"] = config.attention_bias;
  if (config.kind == LlamaKind::llama) result["mlp_bias"] = config.mlp_bias;
  write_rope(result, config.rope);
  return result;
}

void check_config(const LlamaConfig& config) {
  check_rms_decoder(config);
  // Transformers refuses such a Llama even if it names a head size.
  check(config.kind != LlamaKind::llama || config.width % config.heads == 0,
        "width is {}; expected a multiple of the {} heads", config.width, config.heads);
  check(!config.attention_bias || config.kind != LlamaKind::qwen2,
        "attention_bias is true; expected false: qwen2 has its own biases");
  check(!config.mlp_bias || config.kind == LlamaKind::llama,
        "mlp_bias is true; expected false for {}", enum_name(config.kind));
}

TransformerShape shape_of(const LlamaConfig& config) {
  return {.vocab_size = config.vocab_size,
          .context = config.context,
          .layers = config.layers,
          .width = config.width,
          .heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_size = head_size_of(config),
          .mlp_width = config.mlp_width,
          .gated_mlp = true,
          .qk_norm = config.kind == LlamaKind::qwen3};
}

}  // namespace tessera
