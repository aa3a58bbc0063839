#include "models/llama/olmo2_block.h"

#include <utility>

#include "models/decoder_config.h"
#include "models/rms_decoder.h"

namespace tessera {
namespace {

Linear projection(const std::string& name, std::int64_t inputs, std::int64_t outputs,
                  const LlamaConfig& config) {
  return Linear(name, inputs, outputs, config.attention_bias, WeightLayout::out_in, kUsualInitial);
}

RmsNorm norm(const std::string& name, std::int64_t channels, const LlamaConfig& config) {
  return RmsNorm(name, channels, static_cast<float>(config.norm_epsilon));
}

}  // namespace

Olmo2Attention::Olmo2Attention(const std::string& name, std::int64_t layer,
                               const LlamaConfig& config,
                               std::shared_ptr<const RotaryEmbedding> rotary)
    : layer_(layer),
      heads_(config.heads),
      kv_heads_(config.kv_heads),
      q_proj_(projection(name + ".q_proj", config.width, heads_ * head_size_of(config), config)),
      k_proj_(projection(name + ".k_proj", config.width, kv_heads_ * head_size_of(config), config)),
      v_proj_(projection(name + ".v_proj", config.width, kv_heads_ * head_size_of(config), config)),
      o_proj_(projection(name + ".o_proj", heads_ * head_size_of(config), config.width, config)),
      q_norm_(norm(name + ".q_norm", heads_ * head_size_of(config), config)),
      k_norm_(norm(name + ".k_norm", kv_heads_ * head_size_of(config), config)),
      rotary_(std::move(rotary)) {}

Variable Olmo2Attention::operator()(const Variable& x, const Pass& pass) const {
  const Variable q = (*rotary_)(q_norm_(q_proj_(x)), heads_, pass.positions());
  const Variable k = (*rotary_)(k_norm_(k_proj_(x)), kv_heads_, pass.positions());
  return o_proj_(attend(q, k, v_proj_(x), heads_, kv_heads_, pass, layer_));
}

void Olmo2Attention::visit_parameters(const std::function<void(const Parameter&)>& visit) const {
  for (const Linear* linear : {&q_proj_, &k_proj_, &v_proj_, &o_proj_}) {
    linear->visit_parameters(visit);
  }
  q_norm_.visit_parameters(visit);
  k_norm_.visit_parameters(visit);
}

Olmo2Block::Olmo2Block(const std::string& name, std::int64_t layer, const LlamaConfig& config,
                       std::shared_ptr<const RotaryEmbedding> rotary)
    : self_attn_(name + ".self_attn", layer, config, std::move(rotary)),
      mlp_(name + ".mlp", config.width, config.mlp_width, /*with_bias=*/false, kUsualInitial),
      post_attention_layernorm_(norm(name + ".post_attention_layernorm", config.width, config)),
      post_feedforward_layernorm_(
          norm(name + ".post_feedforward_layernorm", config.width, config)) {}

Variable Olmo2Block::forward(const Variable& x, const Pass& pass) const {
  const Variable middle = add(x, post_attention_layernorm_(self_attn_(x, pass)));
  return add(middle, post_feedforward_layernorm_(mlp_(middle)));
}

void Olmo2Block::visit_parameters(const std::function<void(const Parameter&)>& visit) const {
  self_attn_.visit_parameters(visit);
  mlp_.visit_parameters(visit);
  post_attention_layernorm_.visit_parameters(visit);
  post_feedforward_layernorm_.visit_parameters(visit);
}

}  // namespace tessera
