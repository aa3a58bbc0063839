#include "models/qwen3_moe/model.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "models/gated_mlp.h"
#include "models/moe_mlp.h"
#include "models/self_attention.h"

namespace tessera {
namespace {

// Transformers' initializer_range, for the router and every expert too.
const Initializer kInitial = Initializer::normal(0.02);

RmsNorm norm(const std::string& name, const Qwen3MoeConfig& config) {
  return RmsNorm(name, config.width, static_cast<float>(config.norm_epsilon));
}

SelfAttentionOptions attention_options(const Qwen3MoeConfig& config) {
  return {.width = config.width,
          .heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_size = shape_of(config).head_size,
          .qkv_bias = config.attention_bias,
          .output_bias = config.attention_bias,
          .qk_norm = true,
          .norm_epsilon = static_cast<float>(config.norm_epsilon),
          .initializer = kInitial};
}

MoeMlpOptions moe_options(const Qwen3MoeConfig& config) {
  return {.width = config.width,
          .experts = config.experts,
          .expert_width = config.expert_width,
          .experts_as = {.layout = WeightLayout::out_in, .weighed = WeighedInput::down},
          .initializer = kInitial};
}

/// The parts that all blocks share.
struct Shared {
  std::shared_ptr<const RotaryEmbedding> rotary;
  std::shared_ptr<Routers> routers;
};

class Block final : public DecoderBlock {
 public:
  Block(const std::string& name, std::int64_t layer, const Qwen3MoeConfig& config,
        const Shared& shared)
      : layer_(layer),
        self_attn_(name + ".self_attn", attention_options(config), shared.rotary),
        input_layernorm_(norm(name + ".input_layernorm", config)),
        post_attention_layernorm_(norm(name + ".post_attention_layernorm", config)) {
    if (config.has_experts(layer)) {
      experts_.emplace(name + ".mlp", moe_options(config), shared.routers);
    } else {
      mlp_.emplace(name + ".mlp", config.width, config.mlp_width, /*with_bias=*/false, kInitial);
    }
  }

  Variable forward(const Variable& x, const Pass& pass) const override {
    const Variable middle = self_attn_(input_layernorm_(x), pass, layer_, x);
    const Variable normed = post_attention_layernorm_(middle);
    return mlp_ ? (*mlp_)(normed, middle) : (*experts_)(normed, pass.training, middle);
  }

  void visit_parameters(const std::function<void(const Parameter&)>& visit) const override {
    self_attn_.visit_parameters(visit);
    if (experts_) experts_->visit_parameters(visit);
    if (mlp_) mlp_->visit_parameters(visit);
    input_layernorm_.visit_parameters(visit);
    post_attention_layernorm_.visit_parameters(visit);
  }

 private:
  std::int64_t layer_;
  SelfAttention self_attn_;
  std::optional<MoeMlp> experts_;  // one of these two
  std::optional<GatedMlp> mlp_;
  RmsNorm input_layernorm_;
  RmsNorm post_attention_layernorm_;
};

/// The configuration, checked before a member is made from it.
const Qwen3MoeConfig& checked(const Qwen3MoeConfig& config) {
  check_config(config);
  return config;
}

Shared shared_of(const Qwen3MoeConfig& config) {
  return {
      .rotary =
          std::make_shared<RotaryEmbedding>(config.rope, shape_of(config), RopePairs::half_split),
      .routers = std::make_shared<Routers>(
          config.experts, config.experts_per_token,
          config.normalized_weights ? RouterWeights::normalized_softmax : RouterWeights::softmax)};
}

}  // namespace

Qwen3Moe::Qwen3Moe(const Qwen3MoeConfig& config)
    : RmsDecoder(shape_of(checked(config)), {.norm_epsilon = config.norm_epsilon,
                                             .tied = config.tied,
                                             .padding_id = config.padding_id,
                                             .initializer = kInitial}),
      config_(config) {
  const Shared shared = shared_of(config);
  add_blocks([&](const std::string& name, std::int64_t layer) {
    return std::make_unique<Block>(name, layer, config, shared);
  });
  set_routers(shared.routers);
}

nlohmann::json Qwen3Moe::config() const {
  return to_json(config_);
}

}  // namespace tessera
