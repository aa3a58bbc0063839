#include "models/self_attention.h"

#include <utility>

namespace tessera {

SelfAttention::SelfAttention(const std::string& name, const SelfAttentionOptions& options,
                             std::shared_ptr<const RotaryEmbedding> rotary)
    : heads_(options.heads),
      kv_heads_(options.kv_heads),
      head_size_(options.head_size),
      qkv_proj_({{name + ".q_proj", heads_ * head_size_},
                 {name + ".k_proj", kv_heads_ * head_size_},
                 {name + ".v_proj", kv_heads_ * head_size_}},
                options.width, options.qkv_bias, options.initializer),
      o_proj_(name + ".o_proj", heads_ * head_size_, options.width, options.output_bias,
              WeightLayout::out_in, options.initializer),
      rotary_(std::move(rotary)) {
  if (options.qk_norm) {
    q_norm_.emplace(name + ".q_norm", head_size_, options.norm_epsilon);
    k_norm_.emplace(name + ".k_norm", head_size_, options.norm_epsilon);
  }
}

Variable SelfAttention::operator()(const Variable& x, const Pass& pass, std::int64_t layer,
                                   const Variable& residual) const {
  return o_proj_(q_norm_ ? normed_attended(x, pass, layer) : attended(x, pass, layer), residual);
}

Variable SelfAttention::attended(const Variable& x, const Pass& pass, std::int64_t layer) const {
  return attend(qkv_proj_(x), heads_, kv_heads_, pass, layer, rotary_.get());
}

Variable SelfAttention::normed_attended(const Variable& x, const Pass& pass,
                                        std::int64_t layer) const {
  const auto part = [&](std::size_t i) {
    const JoinedParameters& biases = qkv_proj_.biases;
    return linear(x, qkv_proj_.weights.parts()[i], biases.parts()[i]);
  };
  const auto normed = [&](const Variable& heads, std::int64_t count, const RmsNorm& norm) {
    const Shape packed = heads.shape();
    return reshape(norm(reshape(heads, {packed[0], packed[1], count, head_size_})), packed);
  };
  Variable q = normed(part(0), heads_, *q_norm_), k = normed(part(1), kv_heads_, *k_norm_);
  return attend(std::move(q), std::move(k), part(2), heads_, kv_heads_, pass, layer,
                AttentionSpan::document, rotary_.get());
}

void SelfAttention::visit_parameters(const std::function<void(const Parameter&)>& visit) const {
  qkv_proj_.visit_parameters(visit);
  o_proj_.visit_parameters(visit);
  for (const std::optional<RmsNorm>* norm : {&q_norm_, &k_norm_}) {
    if (*norm) (*norm)->visit_parameters(visit);
  }
}

}  // namespace tessera
