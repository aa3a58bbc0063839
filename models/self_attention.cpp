#include "models/self_attention.h"

#include <utility>

namespace tessera {
namespace {

/// The weights are listed one after the other, so that a strategy makes them neighbours.
QkNorm norms_of(const std::string& name, const TransformerShape& shape, double epsilon) {
  if (!shape.qk_norm) return {};
  const auto weight = [&](const std::string& norm) {
    return Parameter(name + norm + ".weight", {shape.head_size}, Initializer::ones());
  };
  return {JoinedParameters({weight(".q_norm"), weight(".k_norm")}), static_cast<float>(epsilon)};
}

}  // namespace

SelfAttention::SelfAttention(const std::string& name, const TransformerShape& shape,
                             const SelfAttentionOptions& options,
                             std::shared_ptr<const RotaryEmbedding> rotary)
    : layer_(options.layer),
      heads_(shape.heads),
      kv_heads_(shape.kv_heads),
      span_(options.span),
      qkv_proj_({{name + ".q_proj", heads_ * shape.head_size, heads_, "head"},
                 {name + ".k_proj", kv_heads_ * shape.head_size, kv_heads_, "head"},
                 {name + ".v_proj", kv_heads_ * shape.head_size, kv_heads_, "head"}},
                shape.width, options.qkv_bias, options.initializer),
      o_proj_(name + ".o_proj", heads_ * shape.head_size, shape.width, options.output_bias,
              WeightLayout::out_in, options.initializer, by_inputs(heads_, "head")),
      qk_norm_(norms_of(name, shape, options.norm_epsilon)),
      rotary_(std::move(rotary)) {}

Variable SelfAttention::operator()(const Variable& x, const Pass& pass,
                                   const Variable& residual) const {
  const std::int64_t ranks = ranks_of(o_proj_.weight);
  return o_proj_(attend(qkv_proj_(x), heads_ / ranks, kv_heads_ / ranks, pass, layer_,
                        rotary_.get(), qk_norm_, span_),
                 residual);
}

void SelfAttention::visit_parameters(const std::function<void(const Parameter&)>& visit) const {
  qkv_proj_.visit_parameters(visit);
  o_proj_.visit_parameters(visit);
  if (!qk_norm_.defined()) return;
  for (const Parameter& weight : qk_norm_.weights.parts()) visit(weight);
}

}  // namespace tessera
