#include "models/llama/model.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "models/gated_mlp.h"
#include "models/self_attention.h"

namespace tessera {
namespace {

// Transformers' initializer_range. Unlike GPT-2, layers that end a branch do not start smaller.
const Initializer kInitial = Initializer::normal(0.02);

RmsNorm norm(const std::string& name, const LlamaConfig& config) {
  return RmsNorm(name, config.width, static_cast<float>(config.norm_epsilon));
}

SelfAttentionOptions attention_options(const LlamaConfig& config, std::int64_t layer) {
  return {.width = config.width,
          .heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_size = shape_of(config).head_size,
          .qkv_bias = config.attention_bias || config.kind == LlamaKind::qwen2,
          .output_bias = config.attention_bias,
          .qk_norm = config.kind == LlamaKind::qwen3,
          .norm_epsilon = static_cast<float>(config.norm_epsilon),
          .span = config.has_window(layer) ? AttentionSpan::near : AttentionSpan::document,
          .initializer = kInitial};
}

class Block final : public DecoderBlock {
 public:
  Block(const std::string& name, std::int64_t layer, const LlamaConfig& config,
        std::shared_ptr<const RotaryEmbedding> rotary)
      : layer_(layer),
        self_attn_(name + ".self_attn", attention_options(config, layer), std::move(rotary)),
        mlp_(name + ".mlp", config.width, config.mlp_width, config.mlp_bias, kInitial),
        input_layernorm_(norm(name + ".input_layernorm", config)),
        post_attention_layernorm_(norm(name + ".post_attention_layernorm", config)) {}

  Variable forward(const Variable& x, const Pass& pass) const override {
    const Variable middle = self_attn_(input_layernorm_(x), pass, layer_, x);
    return mlp_(post_attention_layernorm_(middle), middle);
  }

  void visit_parameters(const std::function<void(const Parameter&)>& visit) const override {
    for (const Module* part : std::initializer_list<const Module*>{
             &self_attn_, &mlp_, &input_layernorm_, &post_attention_layernorm_}) {
      part->visit_parameters(visit);
    }
  }

 private:
  std::int64_t layer_;
  SelfAttention self_attn_;
  GatedMlp mlp_;
  RmsNorm input_layernorm_;
  RmsNorm post_attention_layernorm_;
};

/// The configuration, checked before a member is made from it.
const LlamaConfig& checked(const LlamaConfig& config) {
  check_config(config);
  return config;
}

}  // namespace

Llama::Llama(const LlamaConfig& config)
    : RmsDecoder(shape_of(checked(config)), {.norm_epsilon = config.norm_epsilon,
                                             .tied = config.tied,
                                             .padding_id = config.padding_id,
                                             .initializer = kInitial}),
      config_(config) {
  const auto rotary =
      std::make_shared<RotaryEmbedding>(config.rope, shape(), RopePairs::half_split);
  add_blocks([&](const std::string& name, std::int64_t layer) {
    return std::make_unique<Block>(name, layer, config, rotary);
  });
}

nlohmann::json Llama::config() const {
  return to_json(config_);
}

}  // namespace tessera
