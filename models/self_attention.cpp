#include "models/self_attention.h"

#include <utility>

namespace tessera {

SelfAttention::SelfAttention(const std::string& name, const SelfAttentionOptions& options,
                             std::shared_ptr<const RotaryEmbedding> rotary)
    : heads_(options.heads),
      kv_heads_(options.kv_heads),
      head_size_(options.head_size),
      q_proj_(name + ".q_proj", options.width, heads_ * head_size_, options.qkv_bias,
              WeightLayout::out_in, options.initializer),
      k_proj_(name + ".k_proj", options.width, kv_heads_ * head_size_, options.qkv_bias,
              WeightLayout::out_in, options.initializer),
      v_proj_(name + ".v_proj", options.width, kv_heads_ * head_size_, options.qkv_bias,
              WeightLayout::out_in, options.initializer),
      o_proj_(name + ".o_proj", heads_ * head_size_, options.width, options.output_bias,
              WeightLayout::out_in, options.initializer),
      rotary_(std::move(rotary)) {
  if (options.qk_norm) {
    q_norm_.emplace(name + ".q_norm", head_size_, options.norm_epsilon);
    k_norm_.emplace(name + ".k_norm", head_size_, options.norm_epsilon);
  }
}

Variable SelfAttention::operator()(const Variable& x, const Pass& pass, std::int64_t layer) const {
  const Variable q = positioned(q_proj_(x), heads_, q_norm_, pass);
  const Variable k = positioned(k_proj_(x), kv_heads_, k_norm_, pass);
  return o_proj_(attend(q, k, v_proj_(x), heads_, kv_heads_, pass, layer));
}

Variable SelfAttention::positioned(Variable x, std::int64_t heads,
                                   const std::optional<RmsNorm>& norm, const Pass& pass) const {
  if (norm) {
    const Shape packed = x.shape();
    const Variable per_head = reshape(x, {packed[0], packed[1], heads, head_size_});
    x = reshape((*norm)(per_head), packed);
  }
  return (*rotary_)(std::move(x), heads, pass.positions());
}

void SelfAttention::visit_parameters(const std::function<void(const Parameter&)>& visit) const {
  for (const Linear* linear : {&q_proj_, &k_proj_, &v_proj_, &o_proj_}) {
    linear->visit_parameters(visit);
  }
  for (const std::optional<RmsNorm>* norm : {&q_norm_, &k_norm_}) {
    if (*norm) (*norm)->visit_parameters(visit);
  }
}

}  // namespace tessera
