// Models of every family that are made in no time.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "models/registry.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {

inline constexpr std::int64_t kVocabulary = 53;

/// One preset for each kind of block.
inline const std::vector<std::string> kPresets = {"gpt2-mini",      "llama3-mini", "qwen3-mini",
                                                  "qwen3-moe-mini", "llama4-mini", "mistral-7b",
                                                  "olmo2-mini",     "gemma3-mini"};

/// A preset with few layers, odd sizes and a context of 12. Llama has a head of its own, the others
/// share the embedding's weight. Some layers have no experts, Llama 4's last has no RoPE, and Gemma's first is local. Heads are
/// not width / heads where the family allows it.
inline Hyperparameters tiny(const std::string& preset) {
  Hyperparameters hyperparameters = model_preset(preset);
  std::visit(
      [](auto& config) {
        config.vocab_size = kVocabulary;
        config.context = 12;
        config.layers = 2;
        config.heads = 4;
        config.width = 24;
        if constexpr (requires { config.kv_heads; }) {
          config.kv_heads = 2;
          config.head_size = 0;
          config.mlp_width = 40;
          config.rope.theta = 100.0;
        }
        if constexpr (requires { config.kind; }) {
          const bool qwen3 = config.kind == LlamaKind::qwen3;
          config.head_size = qwen3 ? 10 : 0;
          config.tied = config.attention_bias = qwen3;
          if (config.window > 0) config.window = 4;
        }
        if constexpr (requires { config.experts; }) {
          config.layers = 3;
          config.head_size = 10;
          config.experts = 5;
          config.expert_width = 9;
        }
        if constexpr (requires { config.dense_layers; }) config.dense_layers = {0};
        if constexpr (requires { config.local_theta; }) {
          config.head_size = 10;
          config.query_scalar = 7;
          config.local_theta = 20.0;
          config.window = 4;
        }
        if constexpr (requires { config.nope_every; }) {
          config.experts_every = 2;
          config.nope_every = 3;
          config.attention_chunk = 4;
          config.floor_scale = 3;
        }
      },
      hyperparameters);
  return hyperparameters;
}

/// The same as one family's configuration.
template <typename Config>
Config tiny(const std::string& preset) {
  return std::get<Config>(tiny(preset));
}

inline Tensor tiny_tokens(const std::string& name, std::int64_t batch = 3,
                          std::int64_t tokens = 11) {
  return index_tensor({batch, tokens}, kVocabulary, name);
}

}  // namespace tessera::test
