#include "models/qwen3_moe/model.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "models/self_attention.h"

namespace tessera {
namespace {

SelfAttentionOptions attention_options(const Qwen3MoeConfig& config, std::int64_t layer) {
  return {.layer = layer,
          .qkv_bias = config.attention_bias,
          .output_bias = config.attention_bias,
          .norm_epsilon = config.norm_epsilon,
          .initializer = kUsualInitial};
}

MoeMlpOptions moe_options(const Qwen3MoeConfig& config) {
  return {.width = config.width,
          .experts = config.experts,
          .expert_width = config.expert_width,
          .experts_as = {.layout = WeightLayout::out_in, .weighed = WeighedInput::down},
          .initializer = kUsualInitial};
}

std::variant<GatedMlp, MoeMlp> feed_forward(const std::string& name, std::int64_t layer,
                                            const Qwen3MoeConfig& config,
                                            const std::shared_ptr<Routers>& routers) {
  if (config.has_experts(layer)) return MoeMlp(name, moe_options(config), routers);
  return GatedMlp(name, config.width, config.mlp_width, /*with_bias=*/false, kUsualInitial);
}

}  // namespace

Qwen3Moe::Qwen3Moe(const Qwen3MoeConfig& config)
    : RmsDecoder(shape_of(checked(config)), {.norm_epsilon = config.norm_epsilon,
                                             .tied = config.tied,
                                             .padding_id = config.padding_id}),
      config_(config) {
  const auto rotary =
      std::make_shared<RotaryEmbedding>(config.rope, shape(), RopePairs::half_split);
  const auto routers = std::make_shared<Routers>(
      config.experts, config.experts_per_token,
      config.normalized_weights ? RouterWeights::normalized_softmax : RouterWeights::softmax);
  add_blocks([&](const std::string& name, std::int64_t layer) {
    return std::make_unique<RmsBlock<SelfAttention>>(
        name, config.width, config.norm_epsilon,
        SelfAttention(name + ".self_attn", shape(), attention_options(config, layer), rotary),
        feed_forward(name + ".mlp", layer, config, routers));
  });
  set_routers(routers);
}

nlohmann::json Qwen3Moe::config() const {
  return to_json(config_);
}

}  // namespace tessera
