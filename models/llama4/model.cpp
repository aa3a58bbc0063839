#include "models/llama4/model.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "models/gated_mlp.h"
#include "models/llama4/attention.h"
#include "models/moe_mlp.h"

namespace tessera {
namespace {

RmsNorm norm(const std::string& name, const Llama4Config& config) {
  return RmsNorm(name, config.width, static_cast<float>(config.norm_epsilon));
}

MoeMlpOptions moe_options(const Llama4Config& config) {
  return {.width = config.width,
          .experts = config.experts,
          .expert_width = config.expert_width,
          .shared_width = config.expert_width,
          .router_name = "router",
          .experts_as = {.layout = WeightLayout::in_out, .weighed = WeighedInput::gate_up},
          .initializer = kLlama4Initial};
}

/// The parts that all blocks share.
struct Shared {
  std::shared_ptr<const Llama4Positions> positions;
  std::shared_ptr<Routers> routers;
};

class Block final : public DecoderBlock {
 public:
  Block(const std::string& name, std::int64_t layer, const Llama4Config& config,
        const Shared& shared)
      : self_attn_(name + ".self_attn", layer, config, shared.positions),
        input_layernorm_(norm(name + ".input_layernorm", config)),
        post_attention_layernorm_(norm(name + ".post_attention_layernorm", config)) {
    if (config.has_experts(layer)) {
      experts_.emplace(name + ".feed_forward", moe_options(config), shared.routers);
    } else {
      mlp_.emplace(name + ".feed_forward", config.width, config.mlp_width, /*with_bias=*/false,
                   kLlama4Initial);
    }
  }

  Variable forward(const Variable& x, const Pass& pass) const override {
    const Variable middle = self_attn_(input_layernorm_(x), pass, x);
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
  Llama4Attention self_attn_;
  std::optional<MoeMlp> experts_;  // one of these two
  std::optional<GatedMlp> mlp_;
  RmsNorm input_layernorm_;
  RmsNorm post_attention_layernorm_;
};

/// The configuration, checked before a member is made from it.
const Llama4Config& checked(const Llama4Config& config) {
  check_config(config);
  return config;
}

}  // namespace

Llama4::Llama4(const Llama4Config& config)
    : RmsDecoder(shape_of(checked(config)), {.norm_epsilon = config.norm_epsilon,
                                             .tied = config.tied,
                                             .padding_id = config.padding_id,
                                             .initializer = kLlama4Initial}),
      config_(config) {
  const Shared shared = {.positions = std::make_shared<Llama4Positions>(config),
                         .routers = std::make_shared<Routers>(
                             config.experts, config.experts_per_token, RouterWeights::sigmoid)};
  add_blocks([&](const std::string& name, std::int64_t layer) {
    return std::make_unique<Block>(name, layer, config, shared);
  });
  set_routers(shared.routers);
}

nlohmann::json Llama4::config() const {
  return to_json(config_);
}

}  // namespace tessera
