#include "models/llama/model.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "models/llama/olmo2_block.h"
#include "models/self_attention.h"

namespace tessera {
namespace {

SelfAttentionOptions attention_options(const LlamaConfig& config, std::int64_t layer) {
  return {.layer = layer,
          .qkv_bias = config.attention_bias || config.kind == LlamaKind::qwen2,
          .output_bias = config.attention_bias,
          .norm_epsilon = config.norm_epsilon,
          .span = config.has_window(layer) ? AttentionSpan::near : AttentionSpan::document,
          .initializer = kUsualInitial};
}

std::unique_ptr<DecoderBlock> make_block(const std::string& name, std::int64_t layer,
                                         const LlamaConfig& config, const TransformerShape& shape,
                                         const std::shared_ptr<const RotaryEmbedding>& rotary) {
  if (config.kind == LlamaKind::olmo2) {
    return std::make_unique<Olmo2Block>(name, layer, config, rotary);
  }
  return std::make_unique<RmsBlock<SelfAttention>>(
      name, config.width, config.norm_epsilon,
      SelfAttention(name + ".self_attn", shape, attention_options(config, layer), rotary),
      GatedMlp(name + ".mlp", config.width, config.mlp_width, config.mlp_bias, kUsualInitial));
}

}  // namespace

Llama::Llama(const LlamaConfig& config)
    : RmsDecoder(shape_of(checked(config)), {.norm_epsilon = config.norm_epsilon,
                                             .tied = config.tied,
                                             .padding_id = config.padding_id}),
      config_(config) {
  const auto rotary =
      std::make_shared<RotaryEmbedding>(config.rope, shape(), RopePairs::half_split);
  add_blocks([&](const std::string& name, std::int64_t layer) {
    return make_block(name, layer, config, shape(), rotary);
  });
}

nlohmann::json Llama::config() const {
  return to_json(config_);
}

}  // namespace tessera
