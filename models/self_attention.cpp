#include "models/self_attention.h"

#include <utility>
#include <vector>

namespace tessera {
namespace {

/// The weights are listed one after the other, so that a strategy makes them neighbours.
QkNorm norms_of(const std::string& name, const TransformerShape& shape,
                const SelfAttentionOptions& options) {
  if (!shape.qk_norm) return {};
  const auto weight = [&](const std::string& norm) {
    return Parameter(name + norm + ".weight", {shape.head_size},
                     Initializer::constant(1.0 - options.norm_offset));
  };
  return {JoinedParameters({weight(".q_norm"), weight(".k_norm")}),
          static_cast<float>(options.norm_epsilon), options.norm_offset};
}

/// A projection of the joined one. Heads of queries share those of keys and values.
JoinedLinear::Part heads(const std::string& name, const TransformerShape& shape,
                         std::int64_t count) {
  return {name, count * shape.head_size, count, "head", shape.heads / count};
}

}  // namespace

SelfAttention::SelfAttention(const std::string& name, const TransformerShape& shape,
                             const SelfAttentionOptions& options,
                             std::shared_ptr<const RotaryEmbedding> rotary)
    : layer_(options.layer),
      span_(options.span),
      scale_(options.scale),
      qkv_proj_({heads(name + ".q_proj", shape, shape.heads),
                 heads(name + ".k_proj", shape, shape.kv_heads),
                 heads(name + ".v_proj", shape, shape.kv_heads)},
                shape.width, options.qkv_bias, options.initializer),
      o_proj_(name + ".o_proj", shape.heads * shape.head_size, shape.width, options.output_bias,
              WeightLayout::out_in, options.initializer, by_inputs(shape.heads, "head")),
      qk_norm_(norms_of(name, shape, options)),
      rotary_(std::move(rotary)) {}

Variable SelfAttention::operator()(const Variable& x, const Pass& pass,
                                   const Variable& residual) const {
  const std::vector<Parameter>& weights = qkv_proj_.weights.parts();
  return o_proj_(attend(qkv_proj_(x), own_heads(weights[0]), own_heads(weights[1]), pass, layer_,
                        rotary_.get(), qk_norm_, span_, scale_),
                 residual);
}

void SelfAttention::visit_parameters(const std::function<void(const Parameter&)>& visit) const {
  qkv_proj_.visit_parameters(visit);
  o_proj_.visit_parameters(visit);
  if (!qk_norm_.defined()) return;
  for (const Parameter& weight : qk_norm_.weights.parts()) visit(weight);
}

}  // namespace tessera
