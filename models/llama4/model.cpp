#include "models/llama4/model.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "models/llama4/attention.h"

namespace tessera {
namespace {

MoeMlpOptions moe_options(const Llama4Config& config) {
  return {.width = config.width,
          .experts = config.experts,
          .expert_width = config.expert_width,
          .shared_width = config.expert_width,
          .router_name = "router",
          .experts_as = {.layout = WeightLayout::in_out, .weighed = WeighedInput::gate_up},
          .initializer = kUsualInitial};
}

std::variant<GatedMlp, MoeMlp> feed_forward(const std::string& name, std::int64_t layer,
                                            const Llama4Config& config,
                                            const std::shared_ptr<Routers>& routers) {
  if (config.has_experts(layer)) return MoeMlp(name, moe_options(config), routers);
  return GatedMlp(name, config.width, config.mlp_width, /*with_bias=*/false, kUsualInitial);
}

}  // namespace

Llama4::Llama4(const Llama4Config& config)
    : RmsDecoder(shape_of(checked(config)), {.norm_epsilon = config.norm_epsilon,
                                             .tied = config.tied,
                                             .padding_id = config.padding_id}),
      config_(config) {
  const auto positions = std::make_shared<Llama4Positions>(config);
  const auto routers =
      std::make_shared<Routers>(config.experts, config.experts_per_token, RouterWeights::sigmoid);
  add_blocks([&](const std::string& name, std::int64_t layer) {
    return std::make_unique<RmsBlock<Llama4Attention>>(
        name, config.width, config.norm_epsilon,
        Llama4Attention(name + ".self_attn", layer, config, positions),
        feed_forward(name + ".feed_forward", layer, config, routers));
  });
  set_routers(routers);
}

nlohmann::json Llama4::config() const {
  return to_json(config_);
}

}  // namespace tessera
