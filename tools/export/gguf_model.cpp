#include "tools/export/gguf_model.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "models/decoder_config.h"
#include "runtime/check.h"

namespace tessera {
namespace {

/// Names inside a block and outside, without ".weight" and ".bias".
constexpr std::pair<std::string_view, std::string_view> kNames[] = {
    {"wte", "token_embd"},
    {"wpe", "position_embd"},
    {"ln_f", "output_norm"},
    {"ln_1", "attn_norm"},
    {"attn.c_attn", "attn_qkv"},
    {"attn.c_proj", "attn_output"},
    {"ln_2", "ffn_norm"},
    {"mlp.c_fc", "ffn_up"},
    {"mlp.c_proj", "ffn_down"},
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm"},
    {"lm_head", "output"},
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"self_attn.o_proj", "attn_output"},
    {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.experts.down_proj", "ffn_down_exps"},
};
constexpr std::string_view kGateUp = "mlp.experts.gate_up_proj";

/// Adds a family's keys.
class Keys {
 public:
  explicit Keys(std::string architecture) : architecture_(std::move(architecture)) {
    keys_.emplace_back("general.architecture", architecture_);
  }

  Keys& add(std::string_view name, std::int64_t value) {
    return add_value(name, static_cast<std::uint32_t>(value));
  }
  Keys& add(std::string_view name, double value) {
    return add_value(name, static_cast<float>(value));
  }

  /// The keys of all families.
  template <typename Config>
  Keys& add_sizes(const Config& config, std::int64_t mlp_width) {
    return add("vocab_size", config.vocab_size)
        .add("context_length", config.context)
        .add("block_count", config.layers)
        .add("embedding_length", config.width)
        .add("feed_forward_length", mlp_width)
        .add("attention.head_count", config.heads);
  }

  /// Those of the families with RMSNorm and RoPE.
  template <typename Config>
  Keys& add_decoder(const Config& config) {
    const std::int64_t head_size = head_size_of(config);
    add_sizes(config, config.mlp_width)
        .add("attention.head_count_kv", config.kv_heads)
        .add("attention.key_length", head_size)
        .add("attention.value_length", head_size)
        .add("attention.layer_norm_rms_epsilon", config.norm_epsilon)
        .add("rope.dimension_count", head_size)
        .add("rope.freq_base", config.rope.theta);
    return add_scaling(config.rope.scaling);
  }

  GgufKeys take() { return std::move(keys_); }

 private:
  Keys& add_value(std::string_view name, GgufValue value) {
    keys_.emplace_back(fmt::format("{}.{}", architecture_, name), std::move(value));
    return *this;
  }
  Keys& add_scaling(const RopeScaling& scaling) {
    if (std::holds_alternative<std::monostate>(scaling)) return *this;
    if (const auto* linear = std::get_if<LinearScaling>(&scaling)) {
      return add_value("rope.scaling.type", "linear").add("rope.scaling.factor", linear->factor);
    }
    if (std::holds_alternative<Llama3Scaling>(scaling)) {
      check(architecture_ == "llama",
            "llama.cpp scales RoPE by llama3's rule in Llama only, not in {}", architecture_);
      return *this;  // rope_divisors
    }
    const auto* yarn = std::get_if<YarnScaling>(&scaling);
    check(
        yarn != nullptr && *yarn == YarnScaling{.factor = yarn->factor,
                                                .original_context = yarn->original_context},
        "this scaling of RoPE has no form in GGUF: linear, llama3 and YaRN with its usual numbers "
        "have one; use --format hf");
    return add_value("rope.scaling.type", "yarn")
        .add("rope.scaling.factor", yarn->factor)
        .add("rope.scaling.original_context_length",
             static_cast<std::int64_t>(yarn->original_context));
  }

  std::string architecture_;
  GgufKeys keys_;
};

GgufKeys keys_of(const Gpt2Config& config) {
  check(config.gelu == GeluForm::tanh,
        "llama.cpp's GPT-2 has GELU in its tanh form, and this model "
        "has the exact one; use --format hf");
  return Keys("gpt2")
      .add_sizes(config, 4 * config.width)
      .add("attention.layer_norm_epsilon", config.norm_epsilon)
      .take();
}

/// The name of the architecture; Mistral's is Llama's.
std::string architecture_of(LlamaKind kind) {
  return kind == LlamaKind::mistral ? "llama" : std::string(enum_name(kind));
}

std::string no_form(std::string_view family) {
  return fmt::format(
      "{} has no form in GGUF here: gpt2, llama, mistral, qwen2, qwen3 and qwen3_moe have one; "
      "use --format hf",
      family);
}

GgufKeys keys_of(const LlamaConfig& config) {
  check(config.kind != LlamaKind::olmo2, "{}", no_form("olmo2"));
  check(!(config.kind == LlamaKind::qwen3 && config.attention_bias),
        "llama.cpp's qwen3 has no biases in attention, and this model has; use --format hf");
  return Keys(architecture_of(config.kind)).add_decoder(config).take();
}

GgufKeys keys_of(const Qwen3MoeConfig& config) {
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    check(
        config.has_experts(layer),
        "llama.cpp's qwen3moe has experts in every layer, and layer {} of this model has none; use "
        "--format hf",
        layer);
  }
  check(config.normalized_weights && !config.attention_bias,
        "llama.cpp's qwen3moe divides a token's weights by their sum (norm_topk_prob) and has no "
        "biases in attention, and this model differs; use --format hf");
  return Keys("qwen3moe")
      .add_decoder(config)
      .add("expert_count", config.experts)
      .add("expert_used_count", config.experts_per_token)
      .add("expert_feed_forward_length", config.expert_width)
      .take();
}

GgufKeys keys_of(const Llama4Config&) {
  fail("{}", no_form("llama4"));
}

GgufKeys keys_of(const Gemma3Config&) {
  fail("{}", no_form("gemma3"));
}

/// "blk.3.attn_q" for "layers.3.self_attn.q_proj".
std::string named(const std::string& name, const std::string& block) {
  for (const auto& [ours, theirs] : kNames) {
    if (name == ours) return fmt::format("{}{}", block, theirs);
  }
  fail("the parameter {} has no name in GGUF", name);
}

GgufLayout layout_of(const Hyperparameters& hyperparameters, std::string_view name) {
  if (std::holds_alternative<Gpt2Config>(hyperparameters)) {
    return {.transposed = name.ends_with("c_attn.weight") || name.ends_with("c_proj.weight") ||
                          name.ends_with("c_fc.weight")};
  }
  const auto* config = std::get_if<LlamaConfig>(&hyperparameters);
  if (config == nullptr || architecture_of(config->kind) != "llama") return {};
  if (name.find("self_attn.q_proj.") != name.npos) return {.paired_heads = config->heads};
  if (name.find("self_attn.k_proj.") != name.npos) return {.paired_heads = config->kv_heads};
  return {};
}

}  // namespace

GgufKeys model_keys(const Hyperparameters& hyperparameters) {
  return std::visit([](const auto& config) { return keys_of(config); }, hyperparameters);
}

std::string difference(const Hyperparameters& hyperparameters) {
  const auto* config = std::get_if<LlamaConfig>(&hyperparameters);
  if (config == nullptr || config->window == 0 || config->window >= config->context) return "";
  return fmt::format(
      "llama.cpp has no windows of attention in this architecture: texts of more than {} tokens "
      "get "
      "other results",
      config->window);
}

Shape GgufTensor::shape() const {
  const Shape& part = parts[0].shape();
  if (layout.transposed) return {part[1], part[0]};
  if (parts.size() == 1) return part;
  return {static_cast<std::int64_t>(parts.size()), part[0], part[1]};
}

std::vector<GgufTensor> tensors_of(const Hyperparameters& hyperparameters,
                                   const std::string& parameter, const TensorNames& names,
                                   const std::vector<Tensor>& stored) {
  std::string name = parameter;
  if (name.starts_with(names.optional_prefix)) name.erase(0, names.optional_prefix.size());
  std::string block;
  if (const auto layer = layer_of(parameter, names)) {
    const std::string before = fmt::format("{}{}.", names.before_layer, *layer);
    name.erase(0, name.find(before) + before.size());
    block = fmt::format("blk.{}.", *layer);
  }
  if (name.starts_with(kGateUp)) {
    std::vector<Tensor> gates, ups;
    for (std::size_t i = 0; i < stored.size(); ++i) (i % 2 == 0 ? gates : ups).push_back(stored[i]);
    return {{.name = block + "ffn_gate_exps.weight", .parts = gates},
            {.name = block + "ffn_up_exps.weight", .parts = ups}};
  }
  const std::string suffix = name.ends_with(".bias") ? ".bias" : ".weight";
  if (name.ends_with(suffix)) name.erase(name.size() - suffix.size());
  const std::string written = named(name, block);
  return {{.name = written + suffix,
           .layout = layout_of(hyperparameters, parameter),
           .wide = stored[0].rank() < 2 || written == "position_embd" ||
                   written.ends_with("ffn_gate_inp"),
           .parts = stored}};
}

std::optional<Tensor> rope_divisors(const Hyperparameters& hyperparameters) {
  const auto* config = std::get_if<LlamaConfig>(&hyperparameters);
  if (config == nullptr || !std::holds_alternative<Llama3Scaling>(config->rope.scaling)) return {};
  const std::int64_t head_size = head_size_of(*config);
  const RopeFrequencies plain = rope_frequencies(head_size, config->rope.theta);
  const RopeFrequencies scaled = frequencies_of(config->rope, head_size, config->context);
  std::vector<float> divisors;
  for (std::size_t i = 0; i < plain.of_pair.size(); ++i) {
    divisors.push_back(static_cast<float>(plain.of_pair[i] / scaled.of_pair[i]));
  }
  return Tensor::from<float>(divisors, {head_size / 2});
}

}  // namespace tessera
