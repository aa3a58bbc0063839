#include "models/gemma3/model.h"

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "models/self_attention.h"

namespace tessera {
namespace {

constexpr float kNormOffset = 1.0f;

SelfAttentionOptions attention_options(const Gemma3Config& config, std::int64_t layer) {
  return {.layer = layer,
          .qkv_bias = config.attention_bias,
          .output_bias = config.attention_bias,
          .norm_epsilon = config.norm_epsilon,
          .norm_offset = kNormOffset,
          .scale = 1.0 / std::sqrt(static_cast<double>(config.query_scalar)),
          .span = config.is_local(layer) ? AttentionSpan::near : AttentionSpan::document,
          .initializer = kUsualInitial};
}

/// A block with norms before and behind both layers.
class Gemma3Block final : public DecoderBlock {
 public:
  Gemma3Block(const std::string& name, const Gemma3Config& config, SelfAttention attention)
      : self_attn_(std::move(attention)),
        mlp_(name + ".mlp", config.width, config.mlp_width, /*with_bias=*/false, kUsualInitial,
             Gate::gelu),
        input_layernorm_(norm(name + ".input_layernorm", config)),
        post_attention_layernorm_(norm(name + ".post_attention_layernorm", config)),
        pre_feedforward_layernorm_(norm(name + ".pre_feedforward_layernorm", config)),
        post_feedforward_layernorm_(norm(name + ".post_feedforward_layernorm", config)) {}

  Variable forward(const Variable& x, const Pass& pass) const override {
    const auto [sum, normed] = pre_feedforward_layernorm_(
        x, post_attention_layernorm_(self_attn_(input_layernorm_(x), pass)));
    return add(sum, post_feedforward_layernorm_(mlp_(normed)));
  }

  void visit_parameters(const std::function<void(const Parameter&)>& visit) const override {
    self_attn_.visit_parameters(visit);
    mlp_.visit_parameters(visit);
    for (const RmsNorm* norm : {&input_layernorm_, &post_attention_layernorm_,
                                &pre_feedforward_layernorm_, &post_feedforward_layernorm_}) {
      norm->visit_parameters(visit);
    }
  }

 private:
  static RmsNorm norm(const std::string& name, const Gemma3Config& config) {
    return RmsNorm(name, config.width, static_cast<float>(config.norm_epsilon), kNormOffset);
  }

  SelfAttention self_attn_;
  GatedMlp mlp_;
  RmsNorm input_layernorm_, post_attention_layernorm_;
  RmsNorm pre_feedforward_layernorm_, post_feedforward_layernorm_;
};

}  // namespace

Gemma3::Gemma3(const Gemma3Config& config)
    : RmsDecoder(shape_of(checked(config)),
                 {.norm_epsilon = config.norm_epsilon,
                  .tied = config.tied,
                  .padding_id = config.padding_id,
                  .norm_offset = kNormOffset,
                  .embedding_scale = std::sqrt(static_cast<double>(config.width))}),
      config_(config) {
  const auto rotary_of = [&](const RopeConfig& rope) {
    return std::make_shared<RotaryEmbedding>(rope, shape(), RopePairs::half_split);
  };
  const auto global = rotary_of(config.rope), local = rotary_of(config.local_rope());
  add_blocks([&](const std::string& name, std::int64_t layer) {
    return std::make_unique<Gemma3Block>(
        name, config,
        SelfAttention(name + ".self_attn", shape(), attention_options(config, layer),
                      config.is_local(layer) ? local : global));
  });
}

nlohmann::json Gemma3::config() const {
  return to_json(config_);
}

}  // namespace tessera
