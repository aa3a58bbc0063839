#include "models/llama/config.h"

namespace tessera {
namespace {

const RopeConfig kLlama3Rope = {.theta = 500'000.0};

/// Llama 3.1 and 3.2: Llama 3's waves, slowed for a context of 128 Ki tokens.
RopeConfig slowed_rope(double factor) {
  return {.theta = 500'000.0, .scaling = Llama3Scaling{.factor = factor}};
}

/// Touvron et al. 2023, "Llama 2", and its config.json.
LlamaConfig llama2(std::int64_t layers, std::int64_t heads, std::int64_t width,
                   std::int64_t mlp_width) {
  return {
      .layers = layers, .heads = heads, .kv_heads = heads, .width = width, .mlp_width = mlp_width};
}

/// Grattafiori et al. 2024, table 3; Llama 3.2's sizes are those of its config.json.
LlamaConfig llama3(std::int64_t layers, std::int64_t heads, std::int64_t width,
                   std::int64_t mlp_width, const RopeConfig& rope = kLlama3Rope) {
  return {.vocab_size = 128256,
          .context = std::holds_alternative<Llama3Scaling>(rope.scaling) ? 131072 : 8192,
          .layers = layers,
          .heads = heads,
          .kv_heads = 8,
          .width = width,
          .mlp_width = mlp_width,
          .rope = rope};
}

/// Jiang et al. 2023, "Mistral 7B", table 1, and its config.json.
LlamaConfig mistral_7b() {
  return {.kind = LlamaKind::mistral,
          .context = 32768,
          .kv_heads = 8,
          .mlp_width = 14336,
          .window = 4096};
}

/// Qwen Team 2024, "Qwen2.5 Technical Report", table 1.
LlamaConfig qwen2(std::int64_t layers, std::int64_t heads, std::int64_t kv_heads,
                  std::int64_t width, std::int64_t mlp_width) {
  return {.kind = LlamaKind::qwen2,
          .vocab_size = 151936,
          .context = 131072,
          .layers = layers,
          .heads = heads,
          .kv_heads = kv_heads,
          .width = width,
          .mlp_width = mlp_width,
          .norm_epsilon = 1e-6,
          .rope = {.theta = 1e6}};
}

/// Qwen Team 2025, "Qwen3 Technical Report", table 1.
LlamaConfig qwen3(std::int64_t layers, std::int64_t heads, std::int64_t width,
                  std::int64_t mlp_width) {
  return {.kind = LlamaKind::qwen3,
          .vocab_size = 151936,
          .context = 40960,
          .layers = layers,
          .heads = heads,
          .kv_heads = 8,
          .head_size = 128,
          .width = width,
          .mlp_width = mlp_width,
          .norm_epsilon = 1e-6,
          .rope = {.theta = 1e6}};
}

/// OLMo Team 2024, "2 OLMo 2 Furious", table 1, and its config.json.
LlamaConfig olmo2(std::int64_t layers, std::int64_t heads, std::int64_t kv_heads,
                  std::int64_t width, std::int64_t mlp_width) {
  return {.kind = LlamaKind::olmo2,
          .vocab_size = 100352,
          .layers = layers,
          .heads = heads,
          .kv_heads = kv_heads,
          .width = width,
          .mlp_width = mlp_width,
          .norm_epsilon = 1e-6,
          .rope = kLlama3Rope};
}

LlamaConfig tied(LlamaConfig config) {
  config.tied = true;
  return config;
}

LlamaConfig with_context(LlamaConfig config, std::int64_t context) {
  config.context = context;
  return config;
}

LlamaConfig with_vocabulary(LlamaConfig config, std::int64_t vocab_size) {
  config.vocab_size = vocab_size;
  return config;
}

LlamaConfig with_kv_heads(LlamaConfig config, std::int64_t kv_heads) {
  config.kv_heads = kv_heads;
  return config;
}

/// A family's model for a laptop. The feed-forward layer is 8/3 of the width, rounded up to 16.
LlamaConfig mini(const LlamaConfig& family) {
  return tied(with_vocabulary(with_kv_heads(with_context(family, 256), 2), 32000));
}

}  // namespace

const Presets<LlamaConfig>& llama_presets() {
  static const Presets<LlamaConfig> presets = {
      {"llama2-7b", llama2(32, 32, 4096, 11008)},
      {"llama2-13b", llama2(40, 40, 5120, 13824)},
      {"llama3-8b", llama3(32, 32, 4096, 14336)},
      {"llama3-70b", llama3(80, 64, 8192, 28672)},
      {"llama3.1-8b", llama3(32, 32, 4096, 14336, slowed_rope(8.0))},
      {"llama3.2-1b", tied(llama3(16, 32, 2048, 8192, slowed_rope(32.0)))},
      {"llama3.2-3b", tied(llama3(28, 24, 3072, 8192, slowed_rope(32.0)))},
      {"mistral-7b", mistral_7b()},
      {"qwen2.5-0.5b", tied(with_context(qwen2(24, 14, 2, 896, 4864), 32768))},
      {"qwen2.5-1.5b", tied(qwen2(28, 12, 2, 1536, 8960))},
      {"qwen2.5-7b", with_vocabulary(qwen2(28, 28, 4, 3584, 18944), 152064)},
      {"qwen3-0.6b", tied(qwen3(28, 16, 1024, 3072))},
      {"qwen3-1.7b", tied(qwen3(28, 16, 2048, 6144))},
      {"qwen3-8b", qwen3(36, 32, 4096, 12288)},
      {"olmo2-1b", olmo2(16, 16, 16, 2048, 8192)},
      {"olmo2-7b", olmo2(32, 32, 32, 4096, 11008)},
      {"olmo2-13b", olmo2(40, 40, 40, 5120, 13824)},
      {"olmo2-32b", olmo2(64, 40, 8, 5120, 27648)},
      {"llama3-mini", mini(llama3(4, 4, 256, 688))},
      {"qwen3-mini", mini(qwen3(4, 2, 256, 688))},
      {"olmo2-mini", mini(olmo2(4, 4, 2, 256, 688))},
  };
  return presets;
}

}  // namespace tessera
